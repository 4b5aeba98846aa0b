"""Every default of a method, backbone or sampler has its source in the docstring, in one form: `name value: source.`"""

import ast
import re
from typing import Any

import pytest

from fglbench import registry
from fglbench.settings import AggregatedSettings

SHIPPED = [(kind, name) for kind in ("method", "backbone", "sampler") for name in registry.names(kind)]
ENTRY = re.compile(r"^    (\w+) (\S+): (.+\.)$")


def stated(kind: str, name: str) -> dict[str, tuple[str, str]]:
    """Setting -> (value, source), of the section `Defaults:` of a component's docstring."""
    text = ast.get_docstring(ast.parse(registry.declaration(kind, name).path.read_text(encoding="utf-8"))) or ""
    _, _, section = text.partition("\nDefaults:\n")
    lines = re.sub(r"\n {8}", " ", section).splitlines()
    found = [ENTRY.match(line) for line in lines if line.strip()]
    assert all(found), f"{name}: not of the form 'name value: source.': {section}"
    return {match[1]: (match[2], match[3]) for match in found if match}


def written(value: Any) -> str:
    """A default as docstrings write it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_every_default_has_a_source(kind: str, name: str) -> None:
    fields = registry.declaration(kind, name).settings.model_fields
    own = {field: info for field, info in fields.items() if field not in AggregatedSettings.model_fields}
    found = stated(kind, name)
    assert {field: value for field, (value, _) in found.items()} == {
        field: written(info.default) for field, info in own.items()
    }
    for field, (_, source) in found.items():
        assert re.search(r"paper|public code|OpenFGL|FedGTA", source), f"{name}.{field}: whose is it? {source}"


def test_the_papers_rules_are_the_defaults() -> None:
    gcfl, plus = (registry.declaration("method", name).settings().model_dump() for name in ("gcfl", "gcfl+"))
    assert gcfl == {"eps1": 0.01, "eps2": 0.1, "relative": False, "first_round": 20}
    assert plus == {**gcfl, "window": 10, "standardise": False}
