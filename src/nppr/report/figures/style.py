"""How figures look: sizes, fonts, and one colour, marker, line and hatch for each source.

Colours are those of Okabe and Ito, which people with any colour vision tell apart, and three
more of the same hues; marker, line and hatch say the same a second time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "INK",
    "PALETTE",
    "WIDTH",
    "Look",
    "colour_of",
    "look_of",
    "named",
    "new_figure",
    "percent_axis",
    "settle",
    "styled",
    "thinned",
]

INK = "#010203"
"""Text, axes and grid: nearly black, and found again in an SVG to take the page's colour."""

WIDTH = 7.2
"""Inches: that of a page's text."""

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, YELLOW, GREY = "#56B4E9", "#D55E00", "#C4B100", "#7F7F7F"
PURPLE, VIOLET, BROWN = "#A8478A", "#6A7FDB", "#A8661B"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, YELLOW, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
Line = Literal["-", "--", "-.", ":"]
LINES: tuple[Line, ...] = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
LONGEST = 18
"""Characters of a name that are shown."""

SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "image.interpolation": "nearest",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.labelsize": 8,
    "ytick.color": INK,
    "ytick.labelsize": 8,
}


@dataclass(frozen=True)
class Look:
    """What a source looks like in every figure."""

    colour: str
    marker: str
    line: Line
    hatch: str


FIXED = {
    "nppr": Look(PURPLE, "o", "-", ""),
    "nppr:floor=0.5": Look(PINK, "s", "--", "//"),
    "gaussian": Look(BLUE, "^", "-", ".."),
    "uniform": Look(SKY, "v", "--", "xx"),
    "laplace": Look(VIOLET, "D", "-.", "\\\\"),
    "pgd": Look(ORANGE, "P", "-", "++"),
    "cw": Look(YELLOW, "X", "--", "oo"),
    "autoattack": Look(BROWN, "*", ":", "--"),
    "merged": Look(VERMILION, "s", ":", "xx"),
    "weak-adversary": Look(GREEN, "o", "-.", "//"),
    "universal": Look(GREY, "D", "--", ".."),
}
"""Hues as on the page: NPPR purple, PR of fixed noise blue, AR of attacks orange to brown."""


def look_of(source: str) -> Look:
    """The look of a source, the same in every figure and on every machine."""
    if source in FIXED:
        return FIXED[source]
    number = crc32(source.encode("utf-8", "replace"))
    palette, markers = len(PALETTE), len(MARKERS)
    return Look(
        PALETTE[number % palette],
        MARKERS[number // palette % markers],
        LINES[number // (palette * markers) % len(LINES)],
        HATCHES[number // (palette * markers * len(LINES)) % len(HATCHES)],
    )


def colour_of(source: str) -> str:
    """The colour of a source, `#rrggbb`.

    >>> colour_of("nppr")
    '#A8478A'
    """
    return look_of(source).colour


@contextmanager
def styled() -> Iterator[None]:
    """The settings of our figures, for drawing and for writing; those of others are untouched.

    A class name in a script the font lacks is drawn with boxes here, and right in a browser.
    """
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size in inches, whose parts never overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def settle(figure: Figure) -> None:
    """Find the places of all parts once: every file then shows them alike."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def percent_axis(axes: Axes) -> None:
    """Shares on the vertical axis in percent, with a light grid."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.grid(axis="y")


def named(text: str) -> str:
    """A name of the user's as it is shown: short, on one line, without control characters.

    >>> named("a very long name of a class")
    'a very long name …'
    """
    clean = "".join(letter if letter.isprintable() else " " for letter in str(text)).strip()
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1].rstrip() + " …"


def thinned(count: int, most: int) -> list[int]:
    """At most so many of 0..count-1, evenly spaced from the first on.

    >>> thinned(10, 4)
    [0, 3, 6, 9]
    """
    return list(range(0, count, max(1, -(-count // most))))
