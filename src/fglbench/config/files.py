"""YAML files of a configuration as plain mappings."""

from pathlib import Path
from typing import Any

import yaml

from fglbench.errors import ConfigError


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a YAML mapping.

    Raises:
        ConfigError: unreadable, not YAML, or not a mapping.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read as YAML: {error}"]) from error
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: holds {type(value).__name__}, not a mapping of keys."])
    return value
