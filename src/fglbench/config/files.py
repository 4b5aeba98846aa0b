"""Reading of YAML files as mappings."""

from pathlib import Path
from typing import Any

import yaml

from fglbench.errors import ConfigError


def read_yaml(path: Path) -> dict[str, Any]:
    """Load a YAML file that contains a mapping.

    Args:
        path: the file.

    Returns:
        The mapping, with the types that YAML gives.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not contain a mapping.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read as YAML: {error}"]) from error
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: contains {type(value).__name__}; expected a mapping of keys."])
    return value
