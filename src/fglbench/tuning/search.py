"""Search of settings by the validation score, with Optuna.

Every search has its own journal, which one process at a time writes. A search resumes after an interruption. Test nodes
are never used: the value of a trial is the validation score in the round that validation selects, averaged over the
search's seeds. Once five trials have all seeds, a trial is pruned if its mean over the first seeds is below the median
of the other trials' means over as many seeds.

A trial that failed, ran out of memory or ended its process is retried, and given up after `_TRIES` attempts. Settings
that were given up because of an error are retried by the next command.
"""

import json
import math
import shutil
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, cast

import yaml

from fglbench.config.expand import expand
from fglbench.config.schema import Config, Range
from fglbench.config.searches import SearchPlan
from fglbench.errors import FglbenchError
from fglbench.evaluation.client_means import value_of
from fglbench.records.metrics import Metrics
from fglbench.records.run import RETRIED
from fglbench.records.search import SearchRecord
from fglbench.seeding import derive
from fglbench.storage import exclusive, read_json, write_json, write_text
from fglbench.tasks import selecting_metric, task_name
from fglbench.workflow.single import Single, run_single

_COUNTED = ("COMPLETE", "PRUNED")
_WHOLE_TRIALS = 5  # minimum number of different settings for a median
_TRIES = 3
_ERROR = "error"  # attribute with the error of a trial
_BLAMELESS = "blameless"  # marks trials that ended for a reason outside their settings, such as missing data


class _FailedError(Exception):
    """A trial ended in a way that a retry may not repeat.

    Args:
        state: the outcome.
        reason: in words.
    """

    def __init__(self, state: str, reason: str):
        super().__init__(f"{state}: {reason}")
        self.state, self.reason = state, reason


def run_search(
    search: SearchPlan,
    trials: int,
    values: dict[str, Any],
    results: Path,
    folder: Path,
    threads: int = 1,
    shipped: SearchRecord | None = None,
    retry: bool = True,
) -> SearchRecord:
    """Run the trials of a search that are not finished yet.

    Settings that were tried before count again, but are not trained again. A search that was not started here uses its
    shipped record if the record has enough trials.

    Args:
        search: the settings to try.
        trials: the number of settings; fewer if a grid has fewer combinations.
        values: `device`, `mode`, `data` and `jobs` of a configuration. The caller applies the process limits of `jobs`.
        results: the results folder. Graphs, splits and preprocessed files are shared with all studies.
        folder: of the study's searches; holds `<slug>.journal` and, at the end, `<slug>.json`.
        threads: number of torch threads.
        shipped: the record of this search in the file of settings shipped with the study; None if there is none.
        retry: whether to retry settings that an earlier call gave up because of an error.

    Returns:
        The record, as stored in `<slug>.json`.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / f"{search.slug}.journal"
    grid = _grid(search)
    wanted = min(trials, len(grid)) if grid else trials
    with exclusive(journal):
        if shipped and not journal.exists() and _ended(shipped) >= wanted:
            write_json(folder / f"{search.slug}.json", shipped)
            return shipped
        _repair(journal)
        storage = JournalStorage(JournalFileBackend(str(journal)))
        study = optuna.create_study(
            study_name=search.slug,
            storage=storage,
            direction="maximize",
            load_if_exists=True,
        )
        for trial in study.get_trials(states=(TrialState.RUNNING,)):  # left by a killed process
            study.tell(trial.number, state=TrialState.FAIL)
        since = len(study.trials) if retry else 0
        while len(done := _settled(study, since)) < wanted:
            if grid and not study.get_trials(states=(TrialState.WAITING,)):
                study.enqueue_trial(next(params for params in grid if params not in done))
            study.sampler = optuna.samplers.TPESampler(seed=derive(len(done), search.slug) % 2**32)
            _try(study, study.ask(), search, values, results, folder / "trials" / search.slug, threads)
        record = _record(search, study)
        if failed := _failed(study):
            record["failed"] = failed
        write_json(folder / f"{search.slug}.json", record)
    return record


def _settled(study: Any, since: int) -> list[dict[str, Any]]:
    """Return the settings of the trials that count: ended trials, and once each, settings that are given up.

    Trials that ended with an error count only from the number `since` on.
    """
    failed = [
        trial
        for trial in study.trials
        if trial.state.name == "FAIL"
        and _BLAMELESS not in trial.user_attrs
        and not (_ERROR in trial.user_attrs and trial.number < since)
    ]
    counts = Counter(json.dumps(trial.params, sort_keys=True) for trial in failed)
    ended = [trial.params for trial in study.trials if trial.state.name in _COUNTED]
    return ended + [json.loads(params) for params, count in counts.items() if count >= _TRIES]


def _failed(study: Any) -> dict[str, str]:
    """Return the settings whose last trial ended with an error, with the error."""
    last = {json.dumps(trial.params, sort_keys=True): trial for trial in study.trials}
    return {params: trial.user_attrs[_ERROR] for params, trial in last.items() if _ERROR in trial.user_attrs}


def _ended(record: SearchRecord) -> int:
    """Return the number of completed and pruned trials in a record."""
    return sum(record["trials"].get(state.lower(), 0) for state in _COUNTED)


def _try(
    study: Any, trial: Any, search: SearchPlan, values: dict[str, Any], results: Path, trials: Path, threads: int
) -> None:
    """Run one trial, and report its end to the Optuna study."""
    import optuna
    from optuna.trial import TrialState

    try:
        study.tell(trial, _value(trial, search, values, results, trials, threads))
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except _FailedError as error:
        print(f"{search.slug}: trial {trial.number} {trial.params}: {error}", flush=True)
        if error.state == "failed":
            trial.set_user_attr(_ERROR, error.reason)
        study.tell(trial, state=TrialState.FAIL)
    except Exception:
        trial.set_user_attr(_BLAMELESS, True)
        study.tell(trial, state=TrialState.FAIL)
        raise


def _repair(journal: Path) -> None:
    """Remove the incomplete last line and the locks that a killed process left in a journal.

    The caller holds the lock of the journal.
    """
    for lock in journal.parent.glob(f"{journal.name}.lock*"):
        lock.unlink()
    if journal.exists():
        whole, end, half = journal.read_bytes().rpartition(b"\n")
        if half:
            journal.write_bytes(whole + end)


def _grid(search: SearchPlan) -> list[dict[str, Any]]:
    """Return every combination of a space that has only lists; an empty list for a space with a range."""
    if any(isinstance(values, Range) for values in search.space.values()):
        return []
    lists = [values for values in search.space.values() if isinstance(values, list)]
    return [dict(zip(search.space, picked, strict=True)) for picked in product(*lists)]


def _value(trial: Any, search: SearchPlan, values: dict[str, Any], results: Path, trials: Path, threads: int) -> float:
    """Return the mean validation score of a trial.

    Raises:
        TrialPruned: the trial diverged, is not applicable, or is below the median.
        _FailedError: the trial failed, ran out of memory or reached its time limit.
        FglbenchError: no client has validation targets, so there is no score to select settings by.
    """
    import optuna

    tried = {name: _suggest(trial, name, space) for name, space in search.space.items()}
    same = [done for done in trial.study.trials if done.state.name == "COMPLETE" and done.params == tried]
    if same:
        return float(same[0].value)
    study = search.trial(tried)
    config = Config.model_validate({**study.model_dump(), **values})
    scores: list[float] = []
    for cell in expand(study).cells:
        if scores:
            trial.report(_mean(scores), len(scores))
            if below_median(trial.study, scores):
                raise optuna.TrialPruned(f"below the median of other trials after {len(scores)} of the seeds")
        # A search trains in its own folder, because it must not remove runs of studies or of other searches.
        single = Single(config, cell, results, trained=trials)
        run_single(single, threads=threads)
        metrics = Metrics.read(single.seed_folder("evaluate"))
        shutil.rmtree(trials)  # only the score is needed
        state, reason = metrics.outcome.state, metrics.outcome.reason or ""
        if state in RETRIED:
            raise _FailedError(state, reason)
        if state != "ok":
            raise optuna.TrialPruned(reason)
        metric = selecting_metric(task_name(cell.method.spec))
        score = value_of(metrics.readings["val"].val[metric], study.protocol.mean)
        if score is None:
            raise FglbenchError(
                f"{search.slug}: no client has validation targets, so no score selects settings. Raise "
                "protocol.split.val, or the task's own 'val'."
            )
        scores.append(score)
    return _mean(scores)


def below_median(study: Any, scores: list[float]) -> bool:
    """Return whether a trial's mean over its first seeds is below the median of other trials after as many seeds.

    Args:
        study: the Optuna study.
        scores: of the trial, one for each of its first seeds.

    Returns:
        False also if too few trials are complete to judge by.
    """
    whole = [trial.intermediate_values for trial in study.trials if trial.state.name == "COMPLETE"]
    others = [means[len(scores)] for means in whole if len(scores) in means]  # repeated settings have no means
    return len(others) >= _WHOLE_TRIALS and _mean(scores) < median(others)


def _mean(scores: list[float]) -> float:
    return math.fsum(scores) / len(scores)


def _suggest(trial: Any, name: str, space: list[Any] | Range) -> Any:
    """Return the value of a setting that Optuna suggests from a list or a range."""
    if isinstance(space, list):
        return trial.suggest_categorical(name, space)
    if isinstance(space.low, int) and isinstance(space.high, int):
        return trial.suggest_int(name, space.low, space.high, log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _record(search: SearchPlan, study: Any) -> SearchRecord:
    """Return the record of a search."""
    states = [trial.state.name.lower() for trial in study.trials]
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    best = max(complete, key=lambda trial: (trial.value, -trial.number), default=None)
    content = {
        "search": search.slug,
        **search.coordinates,
        "partition": search.trial_study.partitions[0].name,
        "clients": search.trial_study.clients[0],
        "seeds": search.trial_study.seeds,
        "ranges": {name: s.model_dump() if isinstance(s, Range) else s for name, s in search.space.items()},
        "trials": {state: states.count(state) for state in sorted(set(states))},
        f"best_validation_{search.metric}": best.value if best else None,
        "best": best.params if best else None,
    }
    return cast(SearchRecord, content)


def write_tuned(searches: list[SearchPlan], folder: Path, path: Path) -> int:
    """Write the settings that finished searches found, as the file that a study names under `tuned`.

    Args:
        searches: all searches of a study.
        folder: of the study's searches.
        path: the YAML file.

    Returns:
        The number of finished searches.

    Raises:
        FglbenchError: no search is finished.
    """
    pairs = [(search, folder / f"{search.slug}.json") for search in searches]
    records: list[tuple[SearchPlan, SearchRecord]] = [
        (search, read_json(path)) for search, path in pairs if path.exists()
    ]
    if not records:
        raise FglbenchError(f"{folder} has no finished search. Run 'fglbench tune' for this study first.")
    overrides = [
        search.override(record["best"]).model_dump(exclude_defaults=True)
        for search, record in records
        if record["best"]
    ]
    searched = [{key: value for key, value in record.items() if key != "failed"} for _, record in records]
    plain = json.loads(json.dumps({"overrides": overrides, "searches": searched}))
    head = "# Settings found by fglbench tune on validation scores, and the record of the searches.\n"
    write_text(path, head + yaml.safe_dump(plain, sort_keys=False, width=120))
    return len(records)
