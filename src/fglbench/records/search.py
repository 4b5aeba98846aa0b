"""The record of a search of settings: `<slug>.json`, and an entry of `searches` in a file of tuned settings."""

from typing import Any, NotRequired, TypedDict, cast


class SearchRecord(TypedDict):
    """The settings that a search tried and the best of them.

    The key `best_validation_<metric>` holds the best validation score; see `best_score`.

    Attributes:
        search: slug of the search.
        dataset: label of the dataset.
        backbone: label of the backbone.
        method: label of the method.
        partition: name of the partition scheme.
        clients: number of clients.
        seeds: of the search.
        ranges: the values of each setting: a list, or the keys of a range.
        trials: number of trials by state.
        best: the best settings; None if no trial completed.
        failed: by settings as JSON, the error of their last trial; only if a trial ended with an error.
    """

    search: str
    dataset: str
    backbone: str
    method: str
    partition: str
    clients: int
    seeds: list[int]
    ranges: dict[str, Any]
    trials: dict[str, int]
    best: dict[str, Any] | None
    failed: NotRequired[dict[str, str]]


def best_score(record: SearchRecord, metric: str) -> float | None:
    """Return the best validation score of a search.

    Args:
        record: of the search.
        metric: the score that the search maximises.

    Returns:
        The score; None if no trial completed.
    """
    if record["best"] is None:
        return None
    return cast(dict[str, float], record)[f"best_validation_{metric}"]
