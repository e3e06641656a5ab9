"""Draw what `coverage.py` found, for docs/statistics.md.

python benchmarks/coverage_plot.py coverage.json docs/images/coverage.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLES = {
    "normal": ("#0072b2", "o", "-"),
    "bootstrap": ("#56b4e9", "s", "--"),
    "empirical-bernstein": ("#e69f00", "^", "-."),
    "betting": ("#009e73", "D", "-"),
    "mixture": ("#009e73", "D", "-"),
    "clopper-pearson": ("#d55e00", "v", ":"),
}
"""Colours that people tell apart however they see them, with markers and lines of their own."""

Row = dict[str, Any]


def draw(rows: list[Row]) -> Figure:
    """Coverage and width against the mean for two kinds of inputs, and misses at any look."""
    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    grid = figure.subplots(2, 3)
    for column, kind in enumerate(("bimodal", "clustered")):
        for table, axes in (("coverage", grid[0, column]), ("width", grid[1, column])):
            _against_mean(axes, rows, kind, table)
    _misses(grid[0, 2], rows)
    grid[1, 2].axis("off")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    grid[1, 2].legend(handles, labels, loc="upper left", title="over 400 inputs", frameon=False)
    return figure


def _against_mean(axes: Axes, rows: list[Row], kind: str, field: str) -> None:
    for method in ("normal", "bootstrap", "empirical-bernstein", "betting"):
        chosen = [
            row
            for row in rows
            if row["table"] == "population"
            and row["method"] == method
            and row["case"].startswith(kind)
        ]
        means = [float(row["case"].split()[1]) for row in chosen]
        values = [100 * row[field] for row in chosen]
        colour, marker, line = STYLES[method]
        axes.plot(means, values, color=colour, marker=marker, linestyle=line, label=method, ms=4)
    axes.set_xlabel("true mean")
    if field == "coverage":
        axes.axhspan(93.5, 97, color="#bbbbbb", alpha=0.4, lw=0)
        axes.axhline(95, color="#555555", lw=0.8)
        axes.set_title(f"{kind} inputs")
        axes.set_ylabel("intervals that hold it, %")
    else:
        axes.set_ylim(bottom=0)
        axes.set_ylabel("mean width, points")


def _misses(axes: Axes, rows: list[Row]) -> None:
    for method, name in (("mixture", "mixture"), ("clopper-pearson", "Clopper-Pearson")):
        chosen = [row for row in rows if row["table"] == "any look" and row["method"] == method]
        colour, marker, line = STYLES[method]
        axes.plot(
            [float(row["case"]) for row in chosen],
            [100 * (1 - row["coverage"]) for row in chosen],
            color=colour, marker=marker, linestyle=line, label=name, ms=4,
        )  # fmt: skip
    axes.axhline(5, color="#555555", lw=0.8)
    axes.set_title("looked at 200 times")
    axes.set_xlabel("true probability")
    axes.set_ylabel("runs that miss it at any look, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="center right")


def main() -> None:
    """Read, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("found", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    rows = json.loads(given.found.read_text())["coverage"]
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "nppr", "svg.fonttype": "path"}):
        draw(rows).savefig(given.out, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
