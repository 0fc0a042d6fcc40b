"""Pictures of answers, if matplotlib is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.question import Plot

_INCHES = (8.0, 4.5)


def draw(plots: list[Plot], folder: Path, prefix: str) -> list[str]:
    """Write a PNG for each plot and return the file names. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    names = []
    for plot in plots:
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        if plot.kind == "lines":
            _lines(axes, plot)
        else:
            _bars(axes, plot)
        axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
        axes.grid(axis="y", alpha=0.3)
        if len(plot.series) > 1:
            axes.legend()
        name = f"{prefix}-{re.sub(r'[^a-z0-9]+', '-', plot.title.lower()).strip('-')}.png"
        figure.savefig(folder / name, dpi=120)
        names.append(name)
    return names


def _lines(axes: Any, plot: Plot) -> None:
    for series in plot.series:
        axes.plot(series.x, series.y, marker="o", label=series.name)


def _bars(axes: Any, plot: Plot) -> None:
    """Draw a group of bars for each x, one bar a series that has it."""
    labels = list(dict.fromkeys(str(x) for series in plot.series for x in series.x))
    width = 0.8 / max(len(plot.series), 1)
    for index, series in enumerate(plot.series):
        places = [labels.index(str(x)) + (index + 0.5) * width - 0.4 for x in series.x]
        axes.bar_label(axes.bar(places, series.y, width, label=series.name), fmt="{:,.3g}")
    axes.set_xticks(range(len(labels)), labels)
