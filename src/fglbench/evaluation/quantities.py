"""What can be tabulated: title, unit, direction and scale of every metric in the records."""

from typing import NamedTuple


class Quantity(NamedTuple):
    """How a metric is printed.

    Attributes:
        title: its words in captions and on axes.
        unit: printed unit, "" where there is none.
        scale: see `shown`.
        better: "higher", "lower", or None where no direction is better.
        timed: whether values from different devices must not be averaged or compared.
        first: what is added, of what records count from 0 and people from 1.
    """

    title: str
    unit: str
    scale: float
    better: str | None
    timed: bool = False
    first: float = 0.0

    def shown(self, stored: float) -> float:
        """The printed value of a stored one."""
        return stored * self.scale + self.first


_SCORES = {
    "accuracy": Quantity("accuracy", "%", 100.0, "higher"),
    "f1_micro": Quantity("micro F1", "%", 100.0, "higher"),
    "f1_macro": Quantity("macro F1", "%", 100.0, "higher"),
    "auc": Quantity("AUC", "%", 100.0, "higher"),
    "ap": Quantity("average precision", "%", 100.0, "higher"),
    "loss": Quantity("loss", "", 1.0, "lower"),
}
OF_RUNS = {
    "train_seconds": Quantity("training time", "s", 1.0, "lower", timed=True),
    "server_seconds": Quantity("server time", "s", 1.0, "lower", timed=True),
    "eval_seconds": Quantity("evaluation time", "s", 1.0, "lower", timed=True),
    "total_seconds": Quantity("total time", "s", 1.0, "lower", timed=True),
    "peak_memory_mb": Quantity("peak memory", "MiB", 1.0, "lower", timed=True),
    "bytes_up": Quantity("upload", "MB", 1e-6, "lower"),
    "bytes_down": Quantity("download", "MB", 1e-6, "lower"),
    "selected_round": Quantity("selected round", "", 1.0, None, first=1.0),
    "rounds_run": Quantity("rounds until all clients have left", "", 1.0, "lower"),
    "client_rounds": Quantity("rounds that a client trains in", "", 1.0, "lower"),
    "privacy_budget": Quantity("privacy budget of uploaded parameters", "", 1.0, "lower"),
}
"""What every run has, whatever its task."""
QUANTITIES = _SCORES | OF_RUNS


def quantity(metric: str, percent: bool | None = None, better: str | None = None) -> Quantity:
    """The quantity of a metric, with a table's own wishes for percent and direction."""
    known = QUANTITIES.get(metric, Quantity(metric.replace("_", " "), "", 1.0, None))
    if percent is not None and percent != (known.unit == "%"):
        known = known._replace(unit="%" if percent else "", scale=100.0 if percent else 1.0)
    return known._replace(better=better) if better else known
