"""Measured costs on logarithmic axes with fitted power laws: one row per quantity, one column per factor."""

import pandas as pd
from complexity_slopes import FACTORS, QUANTITIES, power_law
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from fglbench.reporting.figures_base import LOOK, legend, panels
from fglbench.reporting.figures_fit import settle
from fglbench.reporting.palette import Style, styles

AXES = {
    "client_s": "client seconds a round",
    "server_s": "server seconds a round",
    "peak_mb": "peak memory (MiB)",
    "bytes": "bytes a round",
    "inference_s": "inference seconds",
}
HEADS = {"nodes": "nodes of a client", "features": "features", "clients": "clients"}


def draw(measured: pd.DataFrame) -> Figure:
    """Draw measured points and fitted lines; the slopes beside each panel are in the order of the lines' right ends.

    Args:
        measured: rows of `complexity.sweep`.
    """
    look = styles(list(dict.fromkeys(measured["method"])), [""])
    with rc_context(LOOK):
        keys = [(quantity, factor) for quantity in QUANTITIES for factor in FACTORS]
        figure, axes = panels(keys, "What a method costs, by size, with slopes on logarithmic axes", 4.6, 2.7)
        for panel, (quantity, factor) in zip(axes, keys, strict=True):
            _panel(panel, measured[measured["factor"] == factor], quantity, factor, look)
        legend(figure, axes)
        settle(figure)
    return figure


def _panel(panel: Axes, measured: pd.DataFrame, quantity: str, factor: str, look: dict[tuple[str, str], Style]) -> None:
    ends = []
    for method, part in measured.groupby("method", sort=False):
        sizes, style = part[factor].to_numpy(dtype=float), look[method, ""]
        law = power_law(sizes, part[quantity])
        fitted = law.at(sizes)
        panel.plot(sizes, fitted, color=style.colour, linestyle=style.dash, linewidth=1.2)
        panel.plot(
            sizes, part[quantity], color=style.colour, marker=style.marker, markersize=4.5, linestyle="", label=method
        )
        ends.append((fitted[-1], f"{round(law.slope, 2) + 0.0:.2f}  {method}", style.colour))
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    ticks = sorted(set(measured[factor]))
    panel.set_xticks(ticks[:: 1 + len(ticks) // 6])
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(HEADS[factor])
    panel.set_ylabel(AXES[quantity])
    for place, (_, text, colour) in enumerate(sorted(ends, key=lambda end: -end[0])):
        height = 1 - (place + 0.5) / len(ends)
        panel.text(1.03, height, text, color=colour, fontsize=8, va="center", transform=panel.transAxes)
