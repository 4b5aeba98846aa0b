"""Measurement of each stage of one cell in a process of its own, as in the workflow.

`python benchmarks/stages.py STAGE REQUEST.json` runs one stage in the current process.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

STAGES = ("download", "split", "preprocess", "train", "evaluate")


@dataclass(frozen=True)
class Measured:
    """Wall seconds and peak resident memory of a finished process."""

    seconds: float
    peak_mb: float


def request_of(study: dict[str, Any], results: Path, mirror: Path | None) -> dict[str, Any]:
    """Return the folders, specifications and seed for the stages of a study's first cell, ready for JSON."""
    from fglbench.config.expand import expand
    from fglbench.config.schema import Study

    cell = expand(Study.model_validate(study)).cells[0]
    folders = {stage: str((results / cell.folder(stage)).parent) for stage in STAGES[1:]}
    return {
        "folders": {"download": str(results / "download" / cell.dataset.slug), **folders},
        "specs": cell.specs,
        "seed": cell.seed,
        "cell": cell.id,
        "mirror": str(mirror) if mirror else None,
    }


def measure(stage: str, request: dict[str, Any]) -> Measured:
    """Run one stage in a fresh process with one thread and measure it."""
    folder = Path(request["folders"]["download"]).parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "request.json").write_text(json.dumps(request))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, __file__, stage, str(folder / "request.json")], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"stage {stage} ended with status {child.returncode}")
    return Measured(seconds, usage.ru_maxrss / 1024)


def record_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return `run.json` of the trained cell."""
    return json.loads((Path(request["folders"]["train"]) / f"seed{request['seed']}" / "run.json").read_text())


def run(stage: str, request: dict[str, Any]) -> None:
    """Run one stage in this process."""
    graph, *_ = folders = [Path(request["folders"][name]) for name in STAGES]
    _, split_folder, preprocessed_folder, train_folder, metrics_folder = folders
    specs, seeds = request["specs"], [request["seed"]]
    if stage == "download":
        from fglbench.stages.download import download

        download(specs["dataset"], graph, Path(request["mirror"]) if request["mirror"] else None)
    elif stage == "split":
        from fglbench.stages.split import split

        split(graph, specs["partition"], seeds, split_folder)
    elif stage == "preprocess":
        from fglbench.stages.preprocess import preprocess

        preprocess(graph, split_folder, specs["prepared"], seeds, preprocessed_folder)
    elif stage == "train_job":
        from fglbench.stages.supervise import train_supervised

        cells = {request["seed"]: request["cell"]}
        train_supervised(graph, preprocessed_folder, specs, cells, train_folder, device="cpu", log="standard output")
    elif stage == "train":
        from fglbench.stages.train import train_seeds

        cells = {request["seed"]: request["cell"]}
        train_seeds(graph, preprocessed_folder, specs, cells, train_folder, device="cpu")
    else:
        from fglbench.stages.evaluate import evaluate

        evaluate(train_folder, split_folder, graph, seeds, metrics_folder)


if __name__ == "__main__":
    run(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
