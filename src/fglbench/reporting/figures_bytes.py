"""Final scores against the number of bytes sent."""

from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fglbench.evaluation.statistics import Summary, summarise
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    LOOK,
    SERIES,
    legend,
    panels_by,
    score_label,
    series_name,
    series_styles,
    without_data,
)
from fglbench.reporting.figures_rows import scored
from fglbench.reporting.frames import groups


def bytes_by_accuracy(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the score against all bytes sent up and down, on a logarithmic axis in MB.

    Error bars show one sample standard deviation over seeds. A method that sends nothing is a horizontal line because a
    logarithmic axis has no zero.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no score with bytes matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = scored(study, spec).merge(_bytes(study.runs), on=[*FIELDS, "seed"], how="inner")
    if chosen.empty:
        return without_data(spec, "score with its bytes")
    look = series_styles(study)
    with rc_context(LOOK):
        figure, parts = panels_by(list(PROBLEM), chosen, study, spec)
        for panel, _, part in parts:
            communicates = False
            for (label, backbone), rows in groups(part, SERIES, study.order):
                style, name = look[label, backbone], series_name((label, backbone), chosen)
                y, x = summarise(rows["value"].tolist()), summarise((rows["bytes"] / 1e6).tolist())
                if x.mean > 0:
                    communicates = True
                    panel.errorbar(
                        x.mean, y.mean, xerr=_bar(x), yerr=y.std, color=style.colour, marker=style.marker,
                        linestyle="none", capsize=3, label=name,
                    )  # fmt: skip
                else:
                    panel.axhline(
                        y.mean, color=style.colour, linestyle="--", linewidth=1.3, label=f"{name} (sends nothing)"
                    )
            if communicates:
                panel.set_xscale("log")
                _log_ticks(panel)
            else:
                panel.set_xticks([])
            panel.set_xlabel("Bytes up and down (MB)")
            panel.set_ylabel(score_label(spec.metric, spec.split, spec.reading))
        legend(figure, figure.axes)
    return figure


def _bytes(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the sum of bytes up and down of every run that has both."""
    both = runs[runs["metric"].isin(["bytes_up", "bytes_down"])].dropna(subset=["value"])
    total = both.groupby([*FIELDS, "seed"], as_index=False, sort=False).agg(
        bytes=("value", "sum"), parts=("value", "size")
    )
    return total[total["parts"] == 2].drop(columns="parts")


def _bar(x: Summary) -> float | None:
    # A logarithmic axis cannot show a bar that reaches zero.
    return x.std if x.std is not None and x.std < x.mean else None


def _log_ticks(panel: Any) -> None:
    """Set margins and plain tick labels: at 1, 2 and 5 on a range below 30-fold, else at powers of ten."""
    low, high = panel.get_xlim()
    panel.set_xlim(low / 2, high * 2)
    narrow = high / low < 30
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
