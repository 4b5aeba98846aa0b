"""Peak resident memory of every stage of two cells: Cora, and a block model of a million nodes.

The block model has 5,000,000 edges, 100 features and 50 clients, and trains SGC for 10 rounds.

    python benchmarks/peak_memory.py --cells cora million --mirror DIR
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import stages

CELLS: dict[str, dict[str, Any]] = {
    "cora": {
        "datasets": ["cora"],
        "partitions": ["louvain"],
        "clients": [10],
        "backbones": ["gcn"],
        "training": {"rounds": 100, "hidden": 64, "dropout": 0.5},
    },
    "million": {
        "datasets": [{"name": "sbm", "nodes": 1_000_000, "average_degree": 10.0, "features": 100}],
        "partitions": ["metis"],
        "clients": [50],
        "backbones": ["sgc"],
        "training": {"rounds": 10},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--scheme", default=None, help="another partition scheme")
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    for cell in arguments.cells:
        study = {**CELLS[cell], "methods": ["fedavg"], "seeds": 1}
        if arguments.scheme:
            study["partitions"] = [arguments.scheme]
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            request = stages.request_of(study, Path(temporary), arguments.mirror)
            for stage in stages.STAGES:
                measured = stages.measure(stage, request)
                print(f"{cell:8} {stage:12} {measured.peak_mb:8.0f} MB {measured.seconds:8.1f} s", flush=True)
            record = stages.record_of(request)
            print(f"{cell:8} outcome {record['outcome']['state']}, trained in {record['train_seconds']:.1f} s")


if __name__ == "__main__":
    main()
