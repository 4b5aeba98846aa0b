"""Overrides: the cells that they select, and their settings."""

from fglbench.config.entries import selected
from fglbench.config.schema import Override, Study
from fglbench.config.validation.entries import given_settings_problems, unknown_entries
from fglbench.config.validation.grids import unknown_clients
from fglbench.config.validation.training import training_problems


def override_problems(study: Study, where: str, override: Override) -> list[str]:
    """Return the problems of one override.

    Args:
        study: a well-typed study.
        where: key of the override, such as "overrides[0]".
        override: the override.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = []
    for key in ("datasets", "methods", "backbones"):
        problems += unknown_entries(f"{where}.{key}", getattr(override, key), getattr(study, key))
    problems += unknown_clients(f"{where}.clients", override.clients or (), study)
    if not (override.settings or override.backbone_settings or override.training):
        problems.append(f"{where}: changes nothing; add settings, backbone_settings or training.")
    problems += training_problems(study, f"{where}.training", override.training)
    for kind, key, values in (
        ("method", "methods", override.settings),
        ("backbone", "backbones", override.backbone_settings),
    ):
        name = "settings" if kind == "method" else "backbone_settings"
        if values and getattr(override, key) is None:
            problems.append(f"{where}.{name}: name the {kind}s that these settings are for, under '{where}.{key}'.")
        elif values:
            for _, entry in selected(getattr(study, key), getattr(override, key)):
                problems += given_settings_problems(kind, entry, values, f"{where}.{name}")
    return list(dict.fromkeys(problems))
