"""`fglbench tune STUDY`: searches the settings that the study's `tune` asks for, on validation accuracy."""

import argparse
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fglbench.commands import components, places
from fglbench.errors import FglbenchError, suggest


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("study", metavar="STUDY|FILE", help="name of a study, or a study file")
    parser.add_argument("--trials", type=int, metavar="N", help="settings tried in each search (the study's)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="(auto)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of torch (1)")


def run(args: argparse.Namespace) -> int:
    """Runs the searches that no other process is at, then those that others left; writes the settings found."""
    from fglbench.config.load import load_study
    from fglbench.config.searches import plan_searches
    from fglbench.tuning import run_search, write_tuned

    components.use_folders(args.components)
    path = _file(args.study)
    study = load_study(path)
    searches = plan_searches(study)
    if study.tune is None or not searches:
        raise FglbenchError(f"{path}: 'tune' asks for no search; see docs/configuration.md.")
    results = Path(args.results)
    folder = results / "tune" / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    values = {"device": args.device, "data": {"mirror": args.mirror}}
    waiting = []
    for search, patience_s in [(search, 0) for search in searches] + [(search, -1) for search in searches]:
        if patience_s and search not in waiting:
            continue
        try:
            with FileLock(folder / f".{search.slug}.turn", timeout=patience_s):
                record = run_search(search, args.trials or study.tune.trials, values, results, folder, args.threads)
        except Timeout:
            waiting.append(search)
            continue
        print(f"{search.slug}: {_text(record)}", flush=True)
    target = results / "tune" / f"{path.stem}.yaml"
    count = write_tuned(searches, folder, target)
    print(f"{target}: settings of {count} searches. Copy it to workflow/studies/tuned/ and name it under 'tuned'.")
    return 0


def _text(record: dict[str, Any]) -> str:
    if record["best"] is None:
        return "no trial ended well"
    return f"{100 * record['best_validation_accuracy']:.2f} % with {record['best']}"


def _file(name: str) -> Path:
    folder = places.studies()
    for path in (Path(name), *([folder / f"{name}.yaml"] if folder else [])):
        if path.is_file():
            return path
    known = [path.stem for path in folder.glob("*.yaml")] if folder else []
    raise FglbenchError(f"'{name}' is neither a study nor a study file. {suggest(name, known)}")
