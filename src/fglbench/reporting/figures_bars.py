"""Running time of the methods: local training and the server."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.evaluation.statistics import summarise
from fglbench.reporting.figures_base import (
    FONT,
    LOOK,
    PANEL_WIDTH,
    for_every_seed,
    groups,
    legend,
    nothing,
    panel_title,
    panels,
    series_name,
    title_of,
)
from fglbench.reporting.figures_fit import wrapped
from fglbench.reporting.records import FIELDS, PROBLEM, Study, complete_only, distinct, select

_CLIENTS, _SERVER = "#4477aa", "#ee6677"


def seconds_by_method(study: Study, spec: Mapping[str, Any]) -> Figure:
    """Seconds of local training and of the server's step over all rounds, stacked, one panel per dataset, scheme,
    number of clients and device; an error bar of one sample standard deviation of their sum."""
    chosen = complete_only(study, select(study.runs, spec.get("where"), f"figure '{spec['name']}'"))
    seconds = for_every_seed(_seconds(chosen), chosen)
    if seconds.empty:
        return nothing(spec, "running time")
    devices = seconds["device"].nunique() > 1
    fields = [*PROBLEM, "device"]
    with rc_context(LOOK):
        parts = list(groups(seconds, fields, study.order))
        tallest = max(len(part[["label", "backbone"]].drop_duplicates()) for _, part in parts)
        names = {series: _name(series, seconds) for series in distinct(seconds, ["label", "backbone"], study.order)}
        bar = 0.28 + 0.17 * max(name.count("\n") for name in names.values())
        figure, axes = panels([key for key, _ in parts], title_of(spec), height=max(2.0, bar * tallest + 1.0))
        for panel, (key, part) in zip(axes, parts, strict=True):
            bars = list(groups(part, ["label", "backbone"], study.order))
            for row, (_, runs) in enumerate(bars):
                total = summarise(runs["train_seconds"].tolist())
                server = float(runs["server_seconds"].mean())
                clients = total.mean - server
                panel.barh(row, clients, color=_CLIENTS, label="local training")
                panel.barh(row, server, left=clients, xerr=total.std, color=_SERVER, capsize=2, label="server")
            panel.set_yticks(range(len(bars)), [names[series] for series, _ in bars])
            panel.invert_yaxis()
            panel.grid(axis="y", visible=False)
            title = panel_title(list(PROBLEM), key[: len(PROBLEM)])
            panel.set_title(f"{title}\n{key[-1]}" if devices else title)
            panel.set_xlabel("Seconds over all rounds")
        legend(figure, axes)
    return figure


def _name(series: tuple[Any, ...], seconds: pd.DataFrame) -> str:
    """What stands beside a bar: at most 0.45 of the panel wide."""
    return wrapped(series_name((series[0], series[1]), seconds).strip(), 0.45 * PANEL_WIDTH, FONT)


def _seconds(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run that has both times."""
    keys = [*FIELDS, "seed", "device"]
    times = runs[runs["metric"].isin(["train_seconds", "server_seconds"])]
    if times.empty:
        return times
    wide = times.pivot_table(index=keys, columns="metric", values="value", aggfunc="first").reset_index()
    return wide.dropna() if {"train_seconds", "server_seconds"} <= set(wide.columns) else wide[:0]
