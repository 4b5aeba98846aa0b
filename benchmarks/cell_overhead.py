"""Wall time outside the training loop of one cell: start, read, evaluate, write and exit of its process.

`train` is one training process. `train_job`, measured in turns with it, is the workflow's job: a process that starts
and supervises a training process.

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
        around: dict[str, list[float]] = {"train": [], "train_job": []}
        for _ in range(arguments.repeats):
            for stage, found in around.items():
                shutil.rmtree(request["folders"]["train"], ignore_errors=True)
                whole = stages.measure(stage, request).seconds
                record = stages.record_of(request)
                found.append(whole - record["train_seconds"] - record["eval_seconds"])
                print(
                    f"{stage:12} {whole:6.2f} s in all, {record['train_seconds']:.2f} s training, "
                    f"{record['eval_seconds']:.2f} s evaluation of every round, {found[-1]:.2f} s around the loop"
                )
        print(f"evaluate     {stages.measure('evaluate', request).seconds:6.2f} s in all")
        alone, job = (statistics.median(found) for found in around.values())
        print(f"around the training loop: {alone:.2f} s (median of {arguments.repeats})")
        print(f"as a job with a child process of its own: {job:.2f} s, {job - alone:+.2f} s")


if __name__ == "__main__":
    main()
