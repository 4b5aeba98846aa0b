"""`fglbench tune STUDY`: run the searches that the study defines under `tune`, by the validation score."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fglbench.commands import components, places
from fglbench.commands.train import positive
from fglbench.errors import FglbenchError, suggest
from fglbench.evaluation.quantities import quantity
from fglbench.records.search import SearchRecord, best_score

if TYPE_CHECKING:
    from fglbench.config.searches import SearchPlan


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("study", metavar="STUDY|FILE", help="name of a study, or a study file")
    parser.add_argument("--trials", type=positive, metavar="N", help="settings tried in each search (the study's)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="(auto)")
    parser.add_argument("--mode", choices=["deterministic", "fast"], default="deterministic", help="(deterministic)")
    parser.add_argument(
        "--failures",
        choices=["retry", "keep"],
        default="retry",
        help="retry: exit with status 1 if settings failed with an error, and try them again in the next run; "
        "keep: keep them as failed (retry)",
    )
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="threads of torch (1)")


def run(args: argparse.Namespace) -> int:
    """Run the searches of a study and write the settings that they found.

    Searches that another process is running come last: this command waits for that process, then completes them.

    Args:
        args: the parsed options.

    Returns:
        Exit status: 1 if no search found settings, or if settings failed with an error and `--failures` is
        "retry"; else 0.

    Raises:
        FglbenchError: there is no such study, or it defines no search.
    """
    from fglbench.config.load import load_study
    from fglbench.config.searches import plan_searches
    from fglbench.config.tuned import shipped_searches
    from fglbench.runtime.devices import claimed_device
    from fglbench.storage import check_writable

    components.use_folders(args.components)
    path = _file(args.study)
    study = load_study(path)
    searches = plan_searches(study)
    if study.tune is None or not searches:
        raise FglbenchError(f"{path}: 'tune' defines no search; see docs/configuration.md.")
    results = Path(args.results)
    check_writable(results)
    folder = results / "tune" / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    values = {"device": args.device, "mode": args.mode, "data": {"mirror": args.mirror}}
    with claimed_device(args.device):
        shipped = shipped_searches(study, path.parent)
        retry = args.failures == "retry"
        trials = args.trials or study.tune.trials
        records = _run_all(searches, trials, values, results, folder, args.threads, shipped, retry)
    successful = sum(record["best"] is not None for record in records)
    if not successful:
        print("no search found settings: no trial succeeded", file=sys.stderr)
        return 1
    from fglbench.tuning.search import write_tuned

    target = results / "tune" / f"{path.stem}.yaml"
    write_tuned(searches, folder, target)
    print(
        f"{target}: settings of {successful} of {len(searches)} searches. "
        "Copy it to workflow/studies/tuned/ and name it under 'tuned'."
    )
    failed = sum(len(record.get("failed", {})) for record in records)
    if failed and retry:
        print(f"settings that failed with an error: {failed}; run the same command to try them again", file=sys.stderr)
    return 1 if failed and retry else 0


def _run_all(
    searches: list["SearchPlan"],
    trials: int,
    values: dict[str, Any],
    results: Path,
    folder: Path,
    threads: int,
    shipped: dict[str, SearchRecord],
    retry: bool,
) -> list[SearchRecord]:
    """Run the searches that no other process is running, then wait for the others and finish them."""
    from fglbench.tuning.search import run_search

    records, waiting = [], []
    for search, patience_s in [(search, 0) for search in searches] + [(search, -1) for search in searches]:
        if patience_s and search not in waiting:
            continue
        try:
            with FileLock(folder / f".{search.slug}.turn.lock", timeout=patience_s):
                record = run_search(search, trials, values, results, folder, threads, shipped.get(search.slug), retry)
        except Timeout:
            waiting.append(search)
            continue
        records.append(record)
        print(f"{search.slug}: {_text(record, search.metric)}", flush=True)
    return records


def _text(record: SearchRecord, metric: str) -> str:
    best, unit = best_score(record, metric), quantity(metric)
    if best is None:
        return "no trial succeeded"
    value = f"{unit.shown(best):.2f} {unit.unit}".strip()
    return f"{unit.title} {value} with {record['best']}"


def _file(name: str) -> Path:
    folder = places.studies()
    for path in (Path(name), *([folder / f"{name}.yaml"] if folder else [])):
        if path.is_file():
            return path
    names = [path.stem for path in folder.glob("*.yaml")] if folder else []
    raise FglbenchError(f"'{name}' is neither a study nor a study file. {suggest(name, names)}")
