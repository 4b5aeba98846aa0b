"""Generator of the reference pages of the configuration.

`python -m fglbench.config.reference docs` rewrites `configuration.md` and `config.schema.json` from the types in
`schema.py`. A test fails if the two files do not match the types.
"""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from fglbench.config.schema import Config, Entry
from fglbench.storage import write_text

_HEAD = """# Configuration

Every key of `config.yaml`, of a file given by `snakemake --configfile`, and of the study files in `workflow/studies/`
(these contain only what to run and what to show, no keys about data and jobs). This page is generated from
`src/fglbench/config/schema.py`; `config.schema.json` beside it is the same as JSON Schema, for editors.

A file given by `--configfile` replaces the shipped one; single keys can be set on the command line
(`--config device=cpu`). Unknown keys are refused, and all problems are reported at once, before any job.

A component is given by its name or as a mapping with its settings and a label:

```yaml
methods:
  - fedavg
  - {name: fedprox, mu: 0.1, label: "FedProx mu=.1"}
  - {name: fedprox, label: FedProx 20 %, training: {participation: 0.2}}
  - {name: fedsage+, aggregation: moon, printed: {method: moon, backbone: fedsage+}}
datasets:
  - {name: flickr, protocol: {setting: inductive, split: {kind: public}}}
```

`training` holds the keys of `training` that differ for that dataset, backbone or method. `protocol` holds the keys of
`protocol` that differ for that dataset: `task`, `split`, `setting` or `features`. `printed` holds names in the paper's
reference file that differ from the suite's: `method`, `backbone` and `variant` of a method, `dataset` of a dataset,
`partition` of a partition scheme.

Numbers in scientific notation need a dot and a sign for YAML to read them as numbers: `1.0e-3`, not `1e-3`.
"""

_PLURALS = {"entry": "entries", "search": "searches"}


def markdown() -> str:
    """Return the page `configuration.md`, with a table of keys for each section.

    Returns:
        Markdown, which ends with a newline.
    """
    sections: list[tuple[str, type[BaseModel]]] = [("Top level", Config)]
    parts = [_HEAD]
    for title, model in sections:
        text = inspect.cleandoc(model.__doc__ or "")
        parts.append(f"\n## {title}\n\n{text}\n\n| key | type | default | meaning |\n|---|---|---|---|")
        for name, field in model.model_fields.items():
            nested = _section(field.annotation)
            if nested and nested.__name__ != "Entry" and all(nested is not listed for _, listed in sections):
                sections.append((_words(nested).capitalize() if _is_mapping(field.annotation) else f"`{name}`", nested))
            default = "required" if field.is_required() else _default(field.default, nested)
            parts.append(f"| `{name}` | {_type(field.annotation)} | {default} | {field.description} |")
    return "\n".join(parts) + "\n"


def json_schema() -> str:
    """Return the JSON Schema of a configuration file.

    Returns:
        JSON, which ends with a newline.
    """
    return json.dumps(Config.model_json_schema(), indent=1, sort_keys=True) + "\n"


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for part in get_args(annotation) if (inner := _section(part))), None)


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict


def _words(model: type[BaseModel], *, plural: bool = False) -> str:
    """Return the name of a section on the page: "search", or "searches" as plural."""
    word = re.sub(r"(?<=.)(?=[A-Z])", " ", model.__name__.removesuffix("Settings")).lower()
    return _PLURALS.get(word, f"{word}s") if plural else word


def _default(value: Any, nested: type[BaseModel] | None) -> str:
    if isinstance(value, BaseModel) or (nested and nested.__name__ != "Entry" and value):
        return "see below"
    if isinstance(value, list):
        value = [item.name if isinstance(item, Entry) else item for item in value]
    return f"`{json.dumps(value)}`"


def _type(annotation: Any) -> str:
    nested = _section(annotation)
    if nested is not None:
        if _is_mapping(annotation):
            return f"mapping of names to lists or {_words(nested, plural=True)}"
        return f"list of {_words(nested, plural=True)}" if "list" in str(annotation) else _words(nested)
    text = str(annotation)
    if text.startswith("dict"):
        return "mapping of axes or columns to values" if "str, typing.Any" not in text else "mapping of keys to values"
    if text.startswith("int | list[int]"):
        return "integer or list of integers" + (" or null" if "None" in text else "")
    if "Literal" in text:
        choices = [str(choice) for choice in _choices(annotation)]
        return ("list of " if text.startswith("list") else "") + ", ".join(choices)
    for name, plain in (
        ("list[int]", "list of integers"),
        ("bool", "true or false"),
        ("float", "number"),
        ("int", "integer"),
    ):
        if name in text:
            return plain + (" or null" if "None" in text else "")
    return ("list of text" if text.startswith("list") else "text") + (" or null" if "None" in text else "")


def _choices(annotation: Any) -> list[Any]:
    inner = get_args(annotation)
    if inner and all(isinstance(choice, str) for choice in inner):
        return list(inner)
    return [choice for part in inner for choice in _choices(part)]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_text(folder / "configuration.md", markdown())
    write_text(folder / "config.schema.json", json_schema())
