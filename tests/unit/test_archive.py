"""Archives: what is archived, and that a study shows it as if it had run it."""

from pathlib import Path

import pandas as pd
import pytest
from synthetic_records import frame, run_rows, study_of, write_study

from fglbench.cli import main
from fglbench.errors import StorageError
from fglbench.records.archive import Archive, archive, archived_cells, load_archives
from fglbench.records.study import StudyRecord
from fglbench.storage import read_json, write_json


def records(folder: Path, *parts: list[dict], curves: pd.DataFrame | None = None) -> Path:
    study = study_of(frame(*parts), seeds=[0])
    full = StudyRecord(study.settings, study.runs, pd.DataFrame() if curves is None else curves, pd.DataFrame())
    write_study(full, folder)
    return folder


def test_only_settled_cells_are_archived(tmp_path):
    failed = {0: {"outcome": "oom", "outcome_round": float("nan"), "reason": "too big"}}
    diverged = {0: {"outcome": "diverged", "outcome_round": 3.0, "reason": "exploded"}}
    folder = records(
        tmp_path / "small",
        run_rows([0.8], label="FedAvg"),
        run_rows(None, label="FedProx", outcomes=diverged),
        run_rows(None, label="Local", outcomes=failed),
    )
    cells = archive(folder, tmp_path / "published" / "small")
    assert cells == ["cora-louvain-10-FedAvg-gcn", "cora-louvain-10-FedProx-gcn"]
    assert archived_cells(tmp_path / "published") == dict.fromkeys(cells, tmp_path / "published" / "small")
    archived = load_archives([tmp_path / "published" / "small"])
    assert set(archived.runs) == set(cells)
    assert archived.runs[cells[1]]["outcome"].tolist() == ["diverged"]


def test_scores_of_another_version_of_the_evaluation_are_left_out(tmp_path, monkeypatch):
    folder = tmp_path / "published" / "small"
    (cell,) = archive(records(tmp_path / "small", run_rows([0.8])), folder)
    assert archived_cells(folder.parent) == {cell: folder}
    monkeypatch.setattr("fglbench.records.archive.EVALUATE_VERSION", 2)
    assert archived_cells(folder.parent) == {}
    write_json(folder / "study.json", read_json(folder / "study.json") | {"evaluate_version": 2})
    assert archived_cells(folder.parent) == {cell: folder}


def test_older_records_get_the_name_of_the_only_device_that_they_can_mean(tmp_path):
    folder = tmp_path / "published" / "small"
    parts = [run_rows([0.8], label=label, device=label) for label in ("cpu", "cuda", "cuda: NVIDIA T4")]
    archive(records(tmp_path / "small", *parts), folder)
    devices = ["cpu: Xeon", "cuda: NVIDIA H100", "cuda: NVIDIA T4"]
    settings = read_json(folder / "study.json") | {"hardware": {"devices": devices, "cores": 2}}
    write_json(folder / "study.json", settings)
    runs = pd.concat(load_archives([folder]).runs.values())
    named = dict(zip(runs["label"], runs["device"], strict=True))
    assert named == {"cpu": "cpu: Xeon", "cuda": "cuda", "cuda: NVIDIA T4": "cuda: NVIDIA T4"}


def test_a_study_without_a_finished_cell_is_not_archived(tmp_path):
    failed = {0: {"outcome": "failed", "outcome_round": float("nan"), "reason": "a bug"}}
    folder = records(tmp_path / "small", run_rows(None, label="Local", outcomes=failed))
    with pytest.raises(StorageError, match="has no finished cell to archive"):
        archive(folder, tmp_path / "published" / "small")
    assert not (tmp_path / "published").exists()


def test_a_cell_shown_in_several_columns_is_read_once(tmp_path):
    once = run_rows([0.8], label="Global", scheme="louvain")
    again = [{**row, "scheme": "metis"} for row in once]
    folder = records(tmp_path / "small", once, again)
    (cell,) = archive(folder, tmp_path / "published" / "small")
    rows = load_archives([tmp_path / "published" / "small"]).runs[cell]
    assert len(rows) == len(once)
    assert set(rows["scheme"]) == {"louvain"}


def test_drawings_of_clients_of_different_sizes_are_read_once_per_split(tmp_path):
    folder = records(tmp_path / "small", run_rows([0.8], label="Local"))
    drawn = [
        {"dataset": "Cora", "scheme": scheme, "clients": 2, "seed": 0, "split": "a", "client": client, "label": labels}
        for scheme in ("louvain", "metis")
        for client, labels in ((-1, [0, 1, 2]), (0, [0, 2]), (1, [1]))
    ]
    pd.DataFrame(drawn).to_parquet(folder / "drawings.parquet")
    archive(folder, tmp_path / "published" / "small")
    rows = load_archives([tmp_path / "published" / "small"]).drawings["a"]
    assert [list(labels) for labels in rows["label"]] == [[0, 1, 2], [0, 2], [1]]


def test_archived_weights_are_of_the_reading_that_they_were_archived_for():
    runs = pd.DataFrame({"metric": ["train_seconds", "selected_round"], "value": [9.0, 3.0]})
    weights = pd.DataFrame({"client": [0, 1], "weights": [[0.5, 0.5], [0.1, 0.9]], "round": 3})
    curve = pd.DataFrame({"round": range(10)})
    archived = Archive({"aa": runs, "bb": runs}, {"aa": curve, "bb": curve}, mixing={"aa": weights})
    assert [len(frame) for name, frame in archived.frames_of("aa", "val") if name == "mixing"] == [2]
    without = [archived.frames_of("aa", "last"), archived.frames_of("aa", "test"), archived.frames_of("bb", "val")]
    assert [[name for name, _ in frames] for frames in without] == [["runs", "curves"]] * 3


def test_nothing_is_published_where_there_is_no_folder(tmp_path):
    assert archived_cells(None) == {}
    assert archived_cells(tmp_path / "nowhere") == {}
    empty = load_archives([])
    assert empty.runs == empty.curves == empty.partitions == {}


def test_the_command_archives_a_study_and_says_what(tmp_path, capsys):
    records(tmp_path / "results" / "studies" / "small", run_rows([0.8, 0.9], label="FedAvg"))
    arguments = ["archive", "small", "--results", str(tmp_path / "results"), "--to", str(tmp_path / "published")]
    assert main(arguments) == 0
    assert "cells archived: 1" in capsys.readouterr().out
    assert read_json(tmp_path / "published" / "small" / "cells.json") == ["cora-louvain-10-FedAvg-gcn"]
    assert main(["archive", "smal", *arguments[2:]]) == 1
    said = capsys.readouterr().err
    assert f"'smal' is not a study with records in {tmp_path}/results/studies. Did you mean 'small'?" in said
    assert main(["archive", str(tmp_path / "results" / "studies" / "small"), *arguments[2:]]) == 1
    assert (tmp_path / "results" / "studies" / "small" / "runs.parquet").exists()


def test_the_earlier_name_of_the_command_works_with_a_note(tmp_path, capsys):
    records(tmp_path / "results" / "studies" / "small", run_rows([0.8], label="FedAvg"))
    assert main(["pack", "small", "--results", str(tmp_path / "results"), "--to", str(tmp_path / "published")]) == 0
    found = capsys.readouterr()
    assert "cells archived: 1" in found.out
    assert found.err == "note: 'fglbench pack' is now called 'fglbench archive'.\n"
