"""Pins, environments and generated pages agree with what they are made from."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

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


def configurations() -> dict[str, str]:
    """The configurations that the repository ships or shows, as YAML."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    files = [ROOT / "config.yaml", *sorted((ROOT / "workflow" / "studies").glob("*.yaml"))]
    found = {path.name: path.read_text(encoding="utf-8") for path in files}
    return found | {f"README.md, example {number}": block for number, block in enumerate(shown, 1)}


@pytest.mark.parametrize("name", configurations())
def test_the_json_schema_accepts_every_configuration_that_is_shipped_or_shown(name):
    schema = json.loads((ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    values = yaml.safe_load(configurations()[name])
    assert [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(values)] == []


@pytest.mark.parametrize("changed", [{"datasets": [5]}, {"methods": [{"mu": 0.1}]}, {"method": ["fedavg"]}])
def test_the_json_schema_refuses_what_the_types_refuse(changed):
    schema = json.loads((ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    assert not Draft202012Validator(schema).is_valid({**values, **changed})


def test_the_page_says_what_a_search_takes():
    page = reference.markdown()
    assert "| `searches` | list of searches | required |" in page
    assert "| `settings` | mapping of names to lists or ranges | `{}` |" in page
    assert "\n## Range\n" in page
