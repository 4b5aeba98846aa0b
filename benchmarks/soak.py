"""Many small cells under random kills: cells per minute, and whether every cell exists exactly once at the end.

python benchmarks/soak.py --cells 1000 --kills 60
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from killing import run_with_kills

PER_SEED = 20  # 2 schemes x 2 client counts x 5 methods
TARGET = "results/studies/grid/study.json"


def grid(seeds: int, seeds_per_job: int) -> dict[str, object]:
    """Return a study with cells of less than a second each, so that the time is spent outside training."""
    return {
        "datasets": ["karate"],
        "partitions": ["louvain", "random"],
        "clients": [2, 3],
        "methods": ["local", "fedavg", "fedper", *({"name": "fedprox", "mu": mu} for mu in (0.01, 0.1))],
        "seeds": seeds,
        "training": {"rounds": 5, "local_epochs": 1, "hidden": 8},
        "device": "cpu",
        "tracking": {"enabled": False},
        "jobs": {"seeds_per_job": seeds_per_job},
    }


def problems(folder: Path, cells: int) -> list[str]:
    """Return lines on the counts that differ at the end: missing, duplicated and failed cells."""
    runs = pd.read_parquet(folder / "results" / "studies" / "grid" / "runs.parquet")
    places = runs[["dataset", "scheme", "clients", "label", "backbone", "seed", "cell"]].drop_duplicates()
    records = sorted((folder / "results" / "train").glob("*/*/*/seed[0-9]*/run.json"))
    scores = runs[(runs["metric"] == "accuracy") & (runs["split"] == "test") & (runs["reading"] == "val")]
    found = {
        "placements in the table": (len(places), cells),
        "distinct cells in the table": (places["cell"].nunique(), cells),
        "records on disk": (len(records), cells),
        "cells that ended well": (runs.loc[runs["outcome"] == "ok", "cell"].nunique(), cells),
        "test accuracies": (len(scores[scores["mean"] == "pooled"]), cells),
    }
    return [f"{what}: {seen} instead of {wanted}" for what, (seen, wanted) in found.items() if seen != wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help=f"a multiple of {PER_SEED}")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--pause-s", type=float, nargs=2, default=(2.0, 15.0), help="time between two kills")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--seeds-per-job", type=int, default=25, help="a process starts in seconds, a cell takes a tenth of one (25)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    arguments = parser.parse_args()
    seeds = max(arguments.cells // PER_SEED, 1)
    cells = seeds * PER_SEED
    with tempfile.TemporaryDirectory(prefix="fglbench-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        (folder / "my.yaml").write_text(yaml.safe_dump(grid(seeds, arguments.seeds_per_job)))
        began = time.perf_counter()
        choice = random.Random(arguments.seed)
        command = ("--cores", str(arguments.cores), TARGET)
        kills = run_with_kills(folder, choice, arguments.kills, tuple(arguments.pause_s), *command)
        minutes = (time.perf_counter() - began) / 60
        found = problems(folder, cells)
    print(f"{cells} cells, {kills} kills, {minutes:.1f} minutes on {arguments.cores} cores")
    print(f"{cells / minutes:.0f} cells per minute")
    print("\n".join(found) or "every cell is there exactly once")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
