"""Time of `snakemake -n` on a configuration of 10,000 cells, in a temporary folder without results.

python benchmarks/dag_scale.py
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent


def grid(seeds: int, seeds_per_job: int) -> dict[str, object]:
    """Return a study of 2 datasets x 2 schemes x 5 client counts x 10 methods x `seeds` seeds."""
    return {
        "datasets": ["digits", "breast-cancer"],
        "partitions": ["louvain", "random"],
        "clients": [2, 3, 5, 8, 10],
        "methods": [{"name": "fedprox", "mu": 0.01 * step} for step in range(1, 11)],
        "seeds": seeds,
        "tracking": {"enabled": False},
        "jobs": {"seeds_per_job": seeds_per_job},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="200 cells each")
    parser.add_argument("--seeds-per-job", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        config = Path(temporary) / "config.yaml"
        config.write_text(yaml.safe_dump(grid(arguments.seeds, arguments.seeds_per_job)))
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--directory", temporary, "--configfile", str(config), "--cores", "1", "-n", "--quiet", "rules"]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    print(next(line for line in done.stdout.splitlines() if line.startswith("total")), "jobs")
    print(f"{200 * arguments.seeds} cells, {arguments.seeds_per_job} seeds a job: {seconds:.1f} s")


if __name__ == "__main__":
    main()
