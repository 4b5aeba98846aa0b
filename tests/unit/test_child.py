"""A function in another process: what comes back, what is told meanwhile, and what it does not need."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fglbench.errors import ConfigError, FglbenchError, PartitionError
from fglbench.runtime import child
from fglbench.runtime.child import after, run_in_child

ROOT = Path(__file__).resolve().parents[2]

# What multiprocessing needs /dev/shm for: a process whose container has none, or a read-only one, is refused it.
NO_SEMAPHORES = """
import _multiprocessing


class Refused:
    SEM_VALUE_MAX = 1

    def __init__(self, *_, **__):
        raise PermissionError(13, "Permission denied")


_multiprocessing.SemLock = Refused
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a function of a source, importable by the child as well."""

    def make(body: str, parameters: str = "") -> Any:
        name = f"work_{abs(hash(body))}"
        source = "import os, time\nfrom fglbench.errors import *\n\n\ndef run({}):\n    {}\n"
        (tmp_path / f"{name}.py").write_text(source.format(parameters, body))
        return __import__(name).run

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return make


def test_a_value_comes_back_from_another_process(work):
    ended = run_in_child(work("return [os.getpid(), number + 1]", "number"), {"number": 4})
    assert (ended.status, ended.value[1], ended.error, ended.fglbench_error()) == (0, 5, None, None)
    assert ended.value[0] != os.getpid()


def test_events_are_told_in_order_before_the_end(work):
    told: list[Any] = []
    ended = run_in_child(work("report(began=1); report(done='µ'); os._exit(3)", "report"), {}, on_event=told.append)
    assert told == [{"began": 1}, {"done": "µ"}]
    assert (ended.status, str(ended)) == (3, "ended with exit status 3")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("raise PartitionError('too many clients')", PartitionError, "too many clients"),
        ("raise ConfigError(['one thing'])", FglbenchError, str(ConfigError(["one thing"]))),
    ],
)
def test_an_error_of_the_suite_can_be_raised_again(work, body, kind, text):
    known = run_in_child(work(body), {}).fglbench_error()
    assert (type(known), str(known)) == (kind, text)


def test_another_error_is_told_with_its_type_and_its_traceback_printed(work, capfd):
    ended = run_in_child(work("raise KeyError('labels')"), {})
    assert (ended.status, ended.error, ended.fglbench_error(), ended.out_of_memory) == (
        1,
        "KeyError: 'labels'",
        None,
        False,
    )
    assert "in run\n    raise KeyError('labels')" in capfd.readouterr().err
    run_in_child(work("raise KeyError('labels')"), {}, quiet=True)
    assert capfd.readouterr().err == ""


def test_memory_that_ran_out_is_told(work):
    assert run_in_child(work("raise MemoryError"), {}).out_of_memory
    assert run_in_child(work("os.kill(os.getpid(), 9)"), {}).out_of_memory


def test_a_child_that_takes_too_long_is_ended(work):
    ended = run_in_child(work("time.sleep(600)"), {}, overdue=after(0.5))
    assert (ended.overdue, ended.status, ended.out_of_memory) == (True, -9, False)


def test_a_child_prints_what_its_stream_cannot_show(work, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert run_in_child(work("print('µ')"), {}).status == 0


def test_a_cell_is_trained_where_there_are_no_semaphores(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(NO_SEMAPHORES)
    command = [sys.executable, "-m", "fglbench", "train", "--dataset", "karate", "--clients", "2", "--rounds", "2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "outcome        ok" in done.stdout


def test_the_path_for_other_processes_begins_with_this_package_once(monkeypatch):
    source = str(ROOT / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/a", source, "/b"]))
    assert child.python_path().split(os.pathsep) == [source, "/a", "/b"]
