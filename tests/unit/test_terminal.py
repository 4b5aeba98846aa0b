"""A stream that cannot show a character shows another one, whatever the command prints."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_records import full_study, write_study

from fglbench.reporting.outcomes import OUTCOMES
from fglbench.runtime import terminal

ENCODINGS = [
    ("ascii", {"PYTHONIOENCODING": "ascii"}),
    ("latin-1", {"PYTHONIOENCODING": "latin-1"}),
    ("ascii", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
]
TEXT = "┏━┓ │ 80.1 ± 0.3 −2.3 ▴ †"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "+-+ | 80.1 ? 0.3 -2.3 ^ *"), ("latin-1", "+-+ | 80.1 ± 0.3 -2.3 ^ *"), ("utf-8", TEXT)],
)
def test_what_an_encoding_lacks_is_replaced(monkeypatch, encoding, shown):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.show_anything()
    print(TEXT, end="", flush=True)
    assert stream.buffer.getvalue().decode(encoding) == shown


@pytest.mark.parametrize(("encoding", "environment"), ENCODINGS)
def test_compare_prints_its_tables_in_any_encoding(tmp_path: Path, encoding: str, environment: dict[str, str]):
    write_study(full_study(), tmp_path / "studies" / "small")
    command = [sys.executable, "-m", "fglbench", "compare", "small", "--results", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode(encoding)
    times = "×" if encoding == "latin-1" else "x"
    assert re.search(rf"max\(2 points, 2\s+{times}\s+pooled", shown), shown
    assert re.search(r"\| FedProx +\| +\d+\.\d / \d+\.\d v \|", shown), shown


def test_outcomes_are_told_apart_without_their_symbols():
    terminal.show_anything()
    shown = "".join(outcome.symbol for outcome in OUTCOMES.values()).encode("ascii", terminal._HANDLER)
    assert len(set(shown)) == len(OUTCOMES)
    assert b"?" not in shown
