"""Search of settings by the validation score, with Optuna.

Every search has a journal of its own, written by one process at a time; a search that was killed goes on where it was.
Test nodes are never looked at: a trial's value is the mean over the search's seeds of the validation score of the
round that validation selects. Once a few settings have all seeds, one whose mean over its first seeds is below the
median of theirs gets no more seeds.

A trial that failed, ran out of memory or took its process with it is tried again, and after `_TRIES` times given up.
Settings given up for an error are tried again by the next command.
"""

import json
import math
import shutil
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from fglbench.config.expand import expand
from fglbench.config.schema import Config, Range
from fglbench.config.searches import SearchPlan
from fglbench.errors import FglbenchError
from fglbench.evaluation.metrics import value_of
from fglbench.records.metrics import Metrics
from fglbench.records.run import TRIED_AGAIN
from fglbench.seeding import derive
from fglbench.storage import exclusive, read_json, write_json, write_text
from fglbench.tasks import selecting_metric, task_name
from fglbench.workflow.single import Single, run_single

_COUNTED = ("COMPLETE", "PRUNED")
_WHOLE_TRIALS = 5  # different settings that a median is taken of at least
_TRIES = 3
_ERROR = "error"  # the error that a trial ended with
_BLAMELESS = "blameless"  # marks trials that ended by what no setting is to blame for, such as missing data


class _FailedError(Exception):
    """A trial ended in a way that another try may not.

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
    shipped: dict[str, Any] | None = None,
    retry: bool = True,
) -> dict[str, Any]:
    """Runs the trials of a search that are not done yet.

    Settings that were tried before count again, but are not run again. A search that was not begun here takes its
    shipped record where that has as many trials.

    Args:
        search: what is tried.
        trials: how many settings; fewer where there are not as many.
        values: `device`, `mode`, `data` and `jobs` of a configuration; of `jobs`, limits of a process are not its work.
        results: the results folder; data and partitions are shared with all studies.
        folder: of the study's searches: `<slug>.journal` and, in the end, `<slug>.json`.
        threads: of torch.
        shipped: the record of this search from the file of settings that came with the study.
        retry: settings that an earlier call gave up for an error are tried again.

    Returns:
        The record: where it was searched, ranges, seeds, trials by state, best value and settings (None where no trial
        ended well), and where some were given up for an error these with it, as `failed`.
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
        for trial in study.get_trials(states=(TrialState.RUNNING,)):  # of a process that was killed
            study.tell(trial.number, state=TrialState.FAIL)
        since = len(study.trials) if retry else 0
        while len(done := _settled(study, since)) < wanted:
            if grid and not study.get_trials(states=(TrialState.WAITING,)):
                study.enqueue_trial(next(params for params in grid if params not in done))
            study.sampler = optuna.samplers.TPESampler(seed=derive(len(done), search.slug) % 2**32)
            _try(study, study.ask(), search, values, results, folder / "trials" / search.slug, threads)
        record = _record(search, study) | ({"failed": failed} if (failed := _failed(study)) else {})
        write_json(folder / f"{search.slug}.json", record)
    return record


def _settled(study: Any, since: int) -> list[dict[str, Any]]:
    """The settings of the trials that count: those that ended, and once each those that are given up.

    Errors of trials before the number `since` do not count.
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
    """The settings whose last trial ended with an error, with that error."""
    last = {json.dumps(trial.params, sort_keys=True): trial for trial in study.trials}
    return {params: trial.user_attrs[_ERROR] for params, trial in last.items() if _ERROR in trial.user_attrs}


def _ended(record: dict[str, Any]) -> int:
    return sum(record["trials"].get(state.lower(), 0) for state in _COUNTED)


def _try(
    study: Any, trial: Any, search: SearchPlan, values: dict[str, Any], results: Path, trials: Path, threads: int
) -> None:
    """Runs one trial and tells the study how it ended."""
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
    """Cuts off the half line that a killed process left, and its lock: this process has the journal for itself."""
    for lock in journal.parent.glob(f"{journal.name}.lock*"):
        lock.unlink()
    if journal.exists():
        whole, end, half = journal.read_bytes().rpartition(b"\n")
        if half:
            journal.write_bytes(whole + end)


def _grid(search: SearchPlan) -> list[dict[str, Any]]:
    """Every combination of the space where it only has lists, else nothing."""
    if any(isinstance(values, Range) for values in search.space.values()):
        return []
    lists = [values for values in search.space.values() if isinstance(values, list)]
    return [dict(zip(search.space, picked, strict=True)) for picked in product(*lists)]


def _value(trial: Any, search: SearchPlan, values: dict[str, Any], results: Path, trials: Path, threads: int) -> float:
    """The mean validation score of a trial.

    Raises:
        TrialPruned: it diverged, is not applicable, or is not worth all seeds.
        _FailedError: it failed, or ran out of memory.
        FglbenchError: there is nothing to choose by.
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
            if _below_median(trial.study, scores):
                raise optuna.TrialPruned(f"below the median of other trials after {len(scores)} of the seeds")
        # In a folder of its own: what is trained for a study, or by another search, is not this search's to remove.
        single = Single(config, cell, results, trained=trials)
        run_single(single, threads=threads)
        metrics = Metrics.read(single.seed_folder("evaluate"))
        shutil.rmtree(trials)  # only its score is needed
        state, reason = metrics.outcome.state, metrics.outcome.reason or ""
        if state in TRIED_AGAIN:
            raise _FailedError(state, reason)
        if state != "ok":
            raise optuna.TrialPruned(reason)
        metric = selecting_metric(task_name(cell.method.spec))
        score = value_of(metrics.readings["val"].val[metric], study.protocol.mean)
        if score is None:
            raise FglbenchError(f"{search.slug}: no client has validation targets, so there is nothing to choose by.")
        scores.append(score)
    return _mean(scores)


def _below_median(study: Any, scores: list[float]) -> bool:
    """Whether the mean of a trial's first scores is below the median that others, which have all, had after as many."""
    whole = [trial.intermediate_values for trial in study.trials if trial.state.name == "COMPLETE"]
    others = [means[len(scores)] for means in whole if len(scores) in means]  # settings tried again have none
    return len(others) >= _WHOLE_TRIALS and _mean(scores) < median(others)


def _mean(scores: list[float]) -> float:
    return math.fsum(scores) / len(scores)


def _suggest(trial: Any, name: str, space: list[Any] | Range) -> Any:
    if isinstance(space, list):
        return trial.suggest_categorical(name, space)
    if isinstance(space.low, int) and isinstance(space.high, int):
        return trial.suggest_int(name, space.low, space.high, log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _record(search: SearchPlan, study: Any) -> dict[str, Any]:
    states = [trial.state.name.lower() for trial in study.trials]
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    best = max(complete, key=lambda trial: (trial.value, -trial.number), default=None)
    return {
        "search": search.slug,
        **search.place,
        "partition": search.trial_study.partitions[0].name,
        "clients": search.trial_study.clients[0],
        "seeds": search.trial_study.seeds,
        "ranges": {name: s.model_dump() if isinstance(s, Range) else s for name, s in search.space.items()},
        "trials": {state: states.count(state) for state in sorted(set(states))},
        f"best_validation_{search.metric}": best.value if best else None,
        "best": best.params if best else None,
    }


def write_tuned(searches: list[SearchPlan], folder: Path, path: Path) -> int:
    """Writes the settings found by finished searches as the file that a study names under `tuned`.

    Returns:
        The number of searches in it.

    Raises:
        FglbenchError: no search is finished.
    """
    pairs = [(search, folder / f"{search.slug}.json") for search in searches]
    records = [(search, read_json(record)) for search, record in pairs if record.exists()]
    if not records:
        raise FglbenchError(f"{folder} holds no finished search.")
    found = [
        search.override(record["best"]).model_dump(exclude_defaults=True)
        for search, record in records
        if record["best"]
    ]
    searched = [{key: value for key, value in record.items() if key != "failed"} for _, record in records]
    plain = json.loads(json.dumps({"overrides": found, "searches": searched}))
    head = "# Settings found by fglbench tune on validation accuracy, and the record of the searches.\n"
    write_text(path, head + yaml.safe_dump(plain, sort_keys=False, width=120))
    return len(records)
