"""Components are found by file name and read without importing what they import."""

import subprocess
import sys
from pathlib import Path

import pytest

from fglbench import registry
from fglbench.config.entries import aggregation_entry, settings_class
from fglbench.config.schema import Entry
from fglbench.errors import ComponentError
from fglbench.settings import OF_ENTRIES

SOURCE = '''"""A method of a user.

More text.
"""

import a_module_that_does_not_exist

from fglbench.methods import base
from fglbench.settings import ComponentSettings, Field

VERSION = 3
TITLE = "Mine"


class Settings(ComponentSettings):
    beta: float = Field(0.5, ge=0, description="Something.")


class Method(base.Method):
    pass
'''


CHANGES_GRAPHS = SOURCE.replace("    pass\n", "    def rebuild(self, round):\n        return None\n")


@pytest.fixture
def folder(tmp_path, own_components):
    return tmp_path


def test_shipped_components_are_found():
    assert {"global", "local", "fedavg", "fedprox", "fedper"} <= set(registry.names("method"))
    assert {"mlp", "gcn", "sgc"} <= set(registry.names("backbone"))
    assert {"louvain", "metis", "random", "dirichlet"} <= set(registry.names("scheme"))


def test_a_users_file_is_read_without_its_imports(folder):
    (folder / "my_method_plus.py").write_text(SOURCE)
    registry.use_folders([folder])
    declared = registry.declaration("method", "my-method+")
    assert declared.version == 3
    assert declared.constants["TITLE"] == "Mine"
    assert declared.summary == "A method of a user."
    assert declared.settings().beta == 0.5
    with pytest.raises(ModuleNotFoundError, match="a_module_that_does_not_exist"):
        registry.module("method", "my-method+")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("VERSION = 3", "VERSION = version()"), "no integer 'VERSION'"),
        (("class Settings", "class Other"), "no class 'Settings"),
        (("Field(0.5", "Field(torch.pi"), "uses 'torch'"),
        (
            ("beta: float = Field(0.5, ge=0,", "beta: float | None = Field(0.5,"),
            "'beta' may be null and has another default",
        ),
        (("beta: float", "label: float"), "a setting cannot be called 'label'"),
    ],
)
def test_broken_declarations_are_named(folder, change, message):
    (folder / "broken.py").write_text(SOURCE.replace(*change))
    registry.use_folders([folder])
    with pytest.raises(ComponentError, match=message):
        registry.declaration("method", "broken")


def test_a_setting_whose_default_is_null_may_be_null(folder):
    (folder / "mine.py").write_text(
        SOURCE.replace("beta: float = Field(0.5, ge=0,", "beta: float | None = Field(None,")
    )
    registry.use_folders([folder])
    assert registry.declaration("method", "mine").settings().beta is None


def test_keys_of_entries_are_those_that_no_setting_has():
    assert set(OF_ENTRIES) == {*Entry.model_fields, "settings"}


def test_a_second_file_of_one_name_is_refused(folder):
    (folder / "fedavg.py").write_text(SOURCE)
    registry.use_folders([folder])
    with pytest.raises(ComponentError, match="already exists"):
        registry.names("method")


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(ComponentError, match=r"'fedproxx' is not a method\. Did you mean 'fedprox'\?"):
        registry.declaration("method", "fedproxx")


def test_reading_all_declarations_imports_neither_torch_nor_mlflow():
    code = (
        "import sys\n"
        "from fglbench import registry\n"
        "for kind in registry.KINDS:\n"
        "    for name in registry.names(kind):\n"
        "        registry.declaration(kind, name)\n"
        "import fglbench.workflow.plan\n"
        "print(sorted({'torch', 'mlflow', 'torch_geometric', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_method_that_changes_graphs_aggregates_for_no_other_one(folder):
    (folder / "mine.py").write_text(SOURCE, encoding="utf-8")
    (folder / "mended.py").write_text(CHANGES_GRAPHS, encoding="utf-8")
    registry.use_folders([folder])
    assert registry.declaration("method", "mended").hooks == {"rebuild"}
    fedgl = settings_class("method", "fedgl")
    assert aggregation_entry(fedgl(aggregation="mine")).name == "mine"
    with pytest.raises(ComponentError, match=r"'mended' is not a method that aggregates for another one\. .*mine"):
        aggregation_entry(fedgl(aggregation="mended"))


@pytest.mark.parametrize(("old", "new"), [("mixing", "aggregate"), ("after", "server_update"), ("shared", "groups")])
def test_a_hook_by_its_old_name_is_refused_with_its_new_one(
    tmp_path: Path, own_components: None, old: str, new: str
) -> None:
    text = f"""
from fglbench.methods import base
from fglbench.settings import ComponentSettings

VERSION = 1

class Settings(ComponentSettings):
    pass

class Method(base.Method):
    def {old}(self, round):
        pass
"""
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    registry.use_folders([tmp_path])
    with pytest.raises(ComponentError, match=f"mine.py: the hook '{old}' is now called {new}"):
        registry.declaration("method", "mine")
