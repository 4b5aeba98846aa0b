"""A full disk or one that may not be written: a named error, earlier files intact, nothing half-made left."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from disks import fill, make_read_only
from matplotlib.figure import Figure
from safetensors.torch import save_file

from fglbench.errors import DiskError, PartitionError
from fglbench.reporting.figures import save
from fglbench.stages.collect import write_parquet
from fglbench.stages.download import download
from fglbench.storage import (
    check_writable,
    disk_trouble,
    exclusive,
    replacing,
    replacing_directory,
    write_json,
    write_npz,
)

LARGE = np.random.default_rng(0).random(100_000)


def test_the_file_that_the_system_refused_is_named(tmp_path: Path) -> None:
    """Which may be one that a user's dataset or method reads."""
    own = tmp_path / "own" / "graph.csv"
    for error, words in (
        (PermissionError(13, "denied", str(own)), f"{own} cannot be read or written: Permission denied"),
        (PermissionError(13, "denied", str(tmp_path / "results" / "a")), "a.json cannot be written: Permission denied"),
        (
            OSError(28, "full", "/other/x"),
            "/other/x cannot be written: No space left on device. Free space there ('df -h /other'",
        ),
        (PermissionError(13, "denied"), "a.json cannot be written: Permission denied"),
    ):
        found = disk_trouble(error, tmp_path / "results" / "a.json")
        assert found is not None and words in str(found)


def test_a_link_to_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(tmp_path / "unmounted")
    with pytest.raises(DiskError, match=r"results/x cannot be written: .*results is a link to a missing folder"):
        check_writable(tmp_path / "results" / "x")


def npz(path: Path) -> None:
    write_npz(path, {"x": LARGE})


def json_(path: Path) -> None:
    write_json(path, LARGE.tolist())


def parquet(path: Path) -> None:
    write_parquet(path, pd.DataFrame({"x": LARGE}))


def safetensors(path: Path) -> None:
    with replacing(path) as temporary:
        save_file({"x": torch.from_numpy(LARGE)}, temporary)


def figure(path: Path) -> None:
    drawn = Figure(figsize=(40, 40), layout="constrained")
    drawn.subplots().imshow(LARGE.reshape(250, 400))
    save(drawn, path.parent, path.name)


def folder(path: Path) -> None:
    with replacing_directory(path) as temporary:
        write_npz(temporary / "a.npz", {"x": LARGE[:10]})
        write_npz(temporary / "b.npz", {"x": LARGE})


WRITERS = [npz, json_, parquet, safetensors, figure, folder]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_is_named_and_leaves_what_was_there(disk: Path, write: Callable[[Path], None]):
    write_json(disk / "earlier.json", {"kept": True})
    before = (disk / "earlier.json").read_bytes()
    fill(disk)
    (disk / "ballast").write_bytes(b"0" * 200_000)  # some room, but less than what is written
    with pytest.raises(DiskError, match=r"cannot be written: No space left on device\. Free space there") as caught:
        write(disk / "made")
    assert str(caught.value).startswith(str(disk / "made"))
    assert sorted(path.name for path in disk.iterdir()) == ["ballast", "earlier.json"]
    assert (disk / "earlier.json").read_bytes() == before


@pytest.mark.parametrize("write", [npz, folder])
def test_a_file_that_cannot_be_replaced_stays(disk: Path, write: Callable[[Path], None]):
    target = disk / "made"
    with replacing_directory(target) as temporary:
        write_json(temporary / "old.json", 1)
    fill(disk)
    with pytest.raises(DiskError):
        folder(target)
    assert [path.name for path in target.iterdir()] == ["old.json"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_read_only_disk_is_named(disk: Path, write: Callable[[Path], None]):
    make_read_only(disk)
    with pytest.raises(DiskError, match=r"cannot be written: Read-only file system\. Make the folder writable"):
        write(disk / "made")


def test_a_lock_and_a_check_on_a_read_only_disk(disk: Path):
    check_writable(disk / "results" / "deep")
    assert list(disk.iterdir()) == []
    make_read_only(disk)
    with pytest.raises(DiskError, match="Read-only file system"):
        check_writable(disk / "results" / "deep")
    with pytest.raises(DiskError, match="Read-only file system"), exclusive(disk / "seed0"):
        raise AssertionError("the lock was held")


def test_other_errors_pass_unchanged(tmp_path: Path):
    with pytest.raises(PartitionError, match="impossible"), replacing_directory(tmp_path / "a"):
        raise PartitionError("impossible")
    with pytest.raises(IsADirectoryError), replacing(tmp_path / "b"):
        raise IsADirectoryError("elsewhere")


def test_a_job_whose_log_is_on_the_full_disk_still_says_why_it_failed(disk: Path):
    script = "\n".join(
        [
            "import numpy as np, sys; from pathlib import Path",
            "from fglbench.stages.job import logged; from fglbench.storage import write_npz",
            "disk = Path(sys.argv[1])",
            "with logged(disk / 'job.log'):",
            "    print('0' * 10_000_000, flush=len(sys.argv) > 2)",
            "    write_npz(disk / 'made.npz', {'x': np.zeros(100_000)})",
        ]
    )
    for arguments in ([], ["flush"]):
        done = subprocess.run([sys.executable, "-c", script, str(disk), *arguments], capture_output=True, text=True)
        assert done.returncode != 0
        assert "cannot be written: No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_read_only_mirror_is_enough(mirror: Path, disk: Path, tmp_path: Path):
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    subprocess.run(["cp", "-r", str(mirror / "PolBlogs"), str(disk)], check=True)
    make_read_only(disk)
    card = download({"name": "polblogs"}, tmp_path / "polblogs", disk)
    assert card["origin"] == "mirror"
