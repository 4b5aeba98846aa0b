"""Wall time of everything around the training loop of one cell: start, read, evaluate, write and exit of its process.

python benchmarks/cell_overhead.py --dataset cora --mirror DIR
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--scheme", default="louvain")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    study = {
        "datasets": [arguments.dataset],
        "partitions": [arguments.scheme],
        "clients": [arguments.clients],
        "methods": ["fedavg"],
        "seeds": 1,
        "training": {"rounds": arguments.rounds},
    }
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        request = stages.request_of(study, Path(temporary), arguments.mirror)
        for stage in ("download", "split", "preprocess"):
            print(f"{stage:12} {stages.measure(stage, request).seconds:6.2f} s in all")
        around = []
        for _ in range(arguments.repeats):
            shutil.rmtree(request["folders"]["train"], ignore_errors=True)
            whole = stages.measure("train", request).seconds
            record = stages.record_of(request)
            loop = record["train_seconds"] + record["eval_seconds"]
            around.append(whole - loop)
            print(
                f"train        {whole:6.2f} s in all, {record['train_seconds']:.2f} s training, "
                f"{record['eval_seconds']:.2f} s evaluation of every round, {whole - loop:.2f} s around the loop"
            )
        print(f"evaluate     {stages.measure('evaluate', request).seconds:6.2f} s in all")
        print(f"around the training loop: {statistics.median(around):.2f} s (median of {arguments.repeats})")


if __name__ == "__main__":
    main()
