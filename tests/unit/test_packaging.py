"""Pins, environments and generated pages agree with what they are made from."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from fglbench.config import reference

ROOT = Path(__file__).parents[2]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, str]:
    lines = (ROOT / "envs" / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *project["optional-dependencies"]["slurm"],
    ]
    return [normal(re.split(r"[<>=\[]", requirement)[0]) for requirement in listed]


def test_every_dependency_is_pinned_without_a_local_version():
    pinned = constraints()
    assert set(declared()) <= set(pinned)
    assert pinned["torch"] == "2.13.0"
    assert not any("+" in version or "@" in version for version in pinned.values())


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_conda_environments_have_the_same_pins(name):
    environment = yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text())
    packages = environment["dependencies"][-1]["pip"]
    assert len(packages) > 5
    pinned = constraints()
    for package in packages:
        library, _, version = package.partition("==")
        assert pinned[normal(library)] == version


@pytest.mark.parametrize(
    ("page", "text"), [("configuration.md", reference.markdown), ("config.schema.json", reference.json_schema)]
)
def test_generated_pages_are_up_to_date(page, text):
    stored = (ROOT / "docs" / page).read_text()
    assert stored == text(), "run `python -m fglbench.config.reference docs`"
