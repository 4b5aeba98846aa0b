"""Centralised training on the whole graph, as a federation of one client: the upper reference of every table.

It does not depend on the partition: for a dataset, split and seed, all columns of a table use the same training.
"""

from fglbench.methods import base
from fglbench.settings import ComponentSettings

VERSION = 1
CENTRALISED = True


class Settings(ComponentSettings):
    pass


class Method(base.Method):
    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {}
