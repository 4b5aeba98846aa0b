"""`fglbench new` writes a working component with a test that passes, and never overwrites."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fglbench import registry
from fglbench.cli import main
from fglbench.commands import new, places
from fglbench.errors import ComponentError

pytestmark = pytest.mark.usefixtures("own_components")

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, folder: Path, text: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    whole = [sys.executable, "-m", *command]
    return subprocess.run(whole, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)


def test_the_written_test_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "method", "my-method", "--folder", str(tmp_path / "mine")]) == 0
    component, test = tmp_path / "mine/methods/my_method.py", tmp_path / "mine/tests/test_my_method.py"
    said = capsys.readouterr().out
    assert f"{component}\n{test}\n" in said
    assert "methods: [fedavg, my-method]" in said
    assert "golden" not in said
    done = run("pytest", "-q", "-p", "no:cacheprovider", str(test), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_written_test_of_a_dataset_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "dataset", "my-graph", "--folder", str(tmp_path / "mine")]) == 0
    assert "datasets: [digits, my-graph]\n  components: [" in capsys.readouterr().out
    done = run("pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "mine/tests/test_my_graph.py"), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_written_method_is_found_and_described_without_importing_it(tmp_path: Path) -> None:
    new.write_component("method", "other", tmp_path)
    registry.use_folders([tmp_path])
    declared = registry.declaration("method", "other")
    assert declared.settings().model_dump() == {"keep": 0.5}
    assert declared.version == 1


def test_in_a_checkout_the_files_go_to_the_package_and_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "checkout", lambda: tmp_path)
    component, test = new.write_component("method", "fed-x2", None)
    assert component == tmp_path / "src/fglbench/methods/fed_x2.py"
    assert test == tmp_path / "tests/unit/test_fed_x2.py"
    assert "components" not in test.read_text()
    for path in (component, test):
        place = ["--stdin-filename", str(ROOT / path.relative_to(tmp_path)), "-"]
        for check in (["check"], ["format", "--check"]):
            done = run("ruff", *check, *place, folder=ROOT, text=path.read_text())
            assert done.returncode == 0, done.stdout + done.stderr


def test_in_a_checkout_the_command_says_how_numbers_are_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "checkout", lambda: tmp_path)
    assert main(["new", "method", "fed-x3"]) == 0
    assert "pytest tests/golden -k fed-x3 --update-golden" in capsys.readouterr().out


def test_without_a_checkout_a_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "checkout", lambda: None)
    with pytest.raises(ComponentError, match="--folder DIR"):
        new.write_component("method", "mine", None)


@pytest.mark.parametrize("existing", ["methods/mine.py", "tests/test_mine.py"])
def test_nothing_is_overwritten(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).parent.mkdir()
    (tmp_path / existing).write_text("precious")
    with pytest.raises(ComponentError, match=r"already exists and was not changed"):
        new.write_component("method", "mine", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / existing]
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize("name", ["../evil", "My", "my_method", "9lives", "a--b", "a-", "", "a b", "a-+", "a++", "+"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ComponentError, match="lower-case letters, digits and single dashes"):
        new.write_component("method", name, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_taken_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"'fedavg' already exists in .*fedavg\.py"):
        new.write_component("method", "fedavg", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_name_may_end_in_a_plus(tmp_path: Path) -> None:
    component, test = new.write_component("method", "fed-x+", tmp_path)
    assert (component.name, test.name) == ("fed_x_plus.py", "test_fed_x_plus.py")
    assert 'NAME = "fed-x+"' in test.read_text()
    registry.use_folders([tmp_path])
    assert "fed-x+" in registry.names("method")


def test_a_name_that_its_file_would_not_give_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ComponentError, match=r"'fed-x-plus' .* its file fed_x_plus\.py stands for 'fed-x\+'\. Use that"
    ):
        new.write_component("method", "fed-x-plus", tmp_path / "mine")
    with pytest.raises(ComponentError, match=r"'gcfl\+' already exists in .*gcfl_plus\.py"):
        new.write_component("method", "gcfl+", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
