"""Growth as slope of a line through logarithms, and the table of measured slopes beside those of the paper's terms."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from complexity_terms import Sizes, term_of

FACTORS = ("nodes", "features", "clients")
QUANTITIES = {
    "client_s": "client seconds a round, mean client",
    "server_s": "server seconds a round",
    "peak_mb": "peak memory, all clients and the server",
    "bytes": "bytes a round, up and down",
    "inference_s": "inference seconds, mean client",
}


class PowerLaw(NamedTuple):
    """value = scale * size ** slope."""

    slope: float
    scale: float

    def at(self, size: np.ndarray) -> np.ndarray:
        return self.scale * size**self.slope


def power_law(sizes: Sequence[float], values: Sequence[float]) -> PowerLaw:
    """Return the least-squares line through (log size, log value); NaN below two sizes with a positive value."""
    x, y = np.asarray(sizes, dtype=float), np.asarray(values, dtype=float)
    x, y = np.log(x[y > 0]), np.log(y[y > 0])
    if len(np.unique(x)) < 2:
        return PowerLaw(np.nan, np.nan)
    from_mean = x - x.mean()
    slope = float(from_mean @ y / (from_mean @ from_mean))
    return PowerLaw(slope, float(np.exp(y.mean() - slope * x.mean())))


def slopes(measured: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method, factor and quantity: overall slope, slope of the two largest sizes, paper's slope.

    Args:
        measured: rows of `complexity.sweep`.
    """
    rows = []
    for (method, factor), part in measured.groupby(["method", "factor"], sort=False):
        sizes = part[factor].tolist()
        at = [Sizes(*own) for own in part[list(FACTORS)].itertuples(index=False)]
        for quantity in QUANTITIES:
            values = part[quantity].tolist()
            term = term_of(method, quantity)
            rows.append(
                {
                    "method": method,
                    "factor": factor,
                    "quantity": quantity,
                    "slope": power_law(sizes, values).slope,
                    "last": power_law(sizes[-2:], values[-2:]).slope,
                    "paper": power_law(sizes, [term.at(own) for own in at]).slope,
                    "term": f"O({term.text})",
                }
            )
    return pd.DataFrame(rows)


def table(found: pd.DataFrame) -> Iterator[str]:
    """Return the lines of the table: one line per quantity and method, with the slopes from `slopes` per factor."""
    head = "".join(f"  {factor + ':':>9} all  last paper" for factor in FACTORS)
    widest = max(map(len, found["term"]))
    for quantity, title in QUANTITIES.items():
        yield title
        yield f"  {'method':9} {'term':{widest}}{head}"
        for method, part in found[found["quantity"] == quantity].groupby("method", sort=False):
            by_factor = {factor: own.iloc[0] for factor, own in part.groupby("factor", sort=False)}
            columns = ((15, "slope"), (5, "last"), (5, "paper"))
            figures = [
                " ".join(f"{round(by_factor[factor][name], 2) + 0.0:{width}.2f}" for width, name in columns)
                for factor in FACTORS
            ]
            yield f"  {method:9} {part['term'].iloc[0]:{widest}}{''.join(figures)}"
        yield ""
