"""Local training: every client trains alone and shares nothing."""

from fglbench.methods import base
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    pass


class Method(base.Method):
    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {}
