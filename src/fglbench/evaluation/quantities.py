"""Quantities in tables and figures: title, unit, direction and scale of every metric in the records."""

from typing import Literal, NamedTuple

Direction = Literal["higher", "lower"]
"""The better direction of a metric."""


class Quantity(NamedTuple):
    """How a metric is printed.

    Attributes:
        title: name in captions and on axes.
        unit: printed unit; "" if there is none.
        scale: factor from the stored to the printed value, see `shown`.
        better: direction; None if no direction is better.
        timed: whether values from different devices must not be averaged or compared.
        first: added to the scaled value; 1 for indices that records count from 0 and tables count from 1.
    """

    title: str
    unit: str
    scale: float
    better: Direction | None
    timed: bool = False
    first: float = 0.0

    def shown(self, stored: float) -> float:
        """Convert a stored value to the printed one.

        Args:
            stored: the value in the records.

        Returns:
            stored x `scale` + `first`.
        """
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
"""The quantities that runs of every task have."""
QUANTITIES = _SCORES | OF_RUNS


def quantity(metric: str, percent: bool | None = None, better: Direction | None = None) -> Quantity:
    """Return the quantity of a metric, with a table's own settings of percent and direction.

    Args:
        metric: its name in the records; unknown metrics have no unit and no direction.
        percent: whether to print percent; None: as usual for the metric.
        better: direction; None: as usual for the metric.

    Returns:
        How to print it.
    """
    result = QUANTITIES.get(metric, Quantity(metric.replace("_", " "), "", 1.0, None))
    if percent is not None and percent != (result.unit == "%"):
        result = result._replace(unit="%" if percent else "", scale=100.0 if percent else 1.0)
    return result._replace(better=better) if better else result
