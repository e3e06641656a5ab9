"""How figures look, what they are drawn of, and their files.

Colours are those of Okabe and Ito, which people with any colour vision tell apart, and three more of
the same hues; marker, line and hatch tell rows apart a second time. In an SVG ids have the figure's
name, the ink takes the page's colour, text stays text in the page's font, and nothing refers to
anything outside. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nppr.core.tally import FloatArray, Metric
from nppr.report import printed_numbers
from nppr.report.evidence import Evidence, NoiseDraws
from nppr.report.findings import by_width
from nppr.report.model import ReportRecord
from nppr.report.number import Number, StatedInterval
from nppr.report.per_input import PerInput
from nppr.search.search_record import DistributionRecord
from nppr.system.records import write_whole

if TYPE_CHECKING:
    from torch import Tensor

INK = "#010203"
"""Text, axes and grid in `figures.mplstyle`: found again in an SVG to take the page's colour."""

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

STYLE = Path(__file__).with_name("figures.mplstyle")


class RowLook(NamedTuple):
    """The look of a source in every figure."""

    colour: str
    marker: str
    line: Line
    hatch: str


HUES = {
    Metric.NPPR: (PURPLE, PINK, VIOLET),
    Metric.PR: (BLUE, SKY, GREEN),
    Metric.AR: (ORANGE, VERMILION, BROWN, YELLOW),
}
"""As on the page: NPPR purple, PR blue, AR orange to brown."""


def looks_of(report: ReportRecord) -> dict[str, RowLook]:
    """A look for every row of the report: a hue of its metric, its own marker, line and hatch."""
    found: dict[str, RowLook] = {}
    count: Counter[Metric] = Counter()
    for row in report.numbers:
        if row.metric in HUES and row.name not in found:
            number, hues = count[row.metric], HUES[row.metric]
            count[row.metric] += 1
            found[row.name] = RowLook(
                hues[number % len(hues)],
                MARKERS[number % len(MARKERS)],
                LINES[number % len(LINES)],
                HATCHES[number % len(HATCHES)],
            )
    return found


@contextmanager
def styled() -> Iterator[None]:
    """The settings of our figures, for drawing and for writing; those of others are untouched.

    A class name in a script the font lacks is drawn with boxes here, and correctly in a browser.
    """
    with mpl.rc_context(fname=STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size in inches, whose parts never overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def new_axes(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty figure of this size with one panel."""
    figure = new_figure(height, width)
    return figure, figure.subplots()


def panel_grid(
    count: int, most: int, row: float, rest: float, width: float = WIDTH, share: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure with room for `count` panels, at most `most` in a row of `row` inches.

    Panels `share` their "x" or "y" axes, or both.
    """
    columns = min(most, count)
    rows = -(-count // columns)
    figure = new_figure(rest + row * rows, width)
    axes = figure.subplots(
        rows, columns, sharex="x" in share, sharey="y" in share, squeeze=False
    ).ravel()
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes.tolist()


def settle(figure: Figure) -> None:
    """Find the places of all parts once: every file then shows them alike."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def percent_axis(axes: Axes, label: str) -> None:
    """Shares on the vertical axis in percent, with a light grid."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.grid(axis="y")


def whole_axis(axes: Axes, label: str) -> None:
    """All shares from 0 to 100 % on the vertical axis."""
    percent_axis(axes, label)
    axes.set_ylim(-0.02, 1.02)


def flat(images: Tensor) -> FloatArray:
    """Images `(..., C, h, w)` as rows `(N, C h w)`."""
    return images.double().flatten(-3).flatten(0, -2).numpy()


def named(text: str) -> str:
    """A name of the user's as it is shown: short, on one line, without control characters.

    >>> named("a very long name of a class")
    'a very long name …'
    """
    clean = "".join(letter if letter.isprintable() else " " for letter in str(text)).strip()
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1].rstrip() + " …"


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` of 0..count-1, evenly spaced from the first on.

    >>> thinned(10, 4)
    [0, 3, 6, 9]
    """
    return list(range(0, count, max(1, -(-count // most))))


@dataclass(frozen=True, eq=False)
class Subject:
    """A run; `per_input` and `evidence` are None where its folder holds none."""

    report: ReportRecord
    per_input: PerInput | None
    evidence: Evidence | None

    @property
    def draws(self) -> tuple[NoiseDraws, ...]:
        """The draws of learned sources that can be shown; the widest set comes first."""
        found = self.evidence.draws if self.evidence else ()
        rows = sorted(name_headlines(self.report.numbers).values(), key=by_width)
        place = {row.name: at for at, row in enumerate(rows)}
        known = [each for each in found if each.many.numel()]
        return tuple(sorted(known, key=lambda each: place.get(each.source, len(place))))

    @property
    def learned(self) -> list[DistributionRecord]:
        """The learned noise that was chosen, one for each rung and floor."""
        return [each for each in self.report.distributions if each.fit_seed is None]

    @cached_property
    def looks(self) -> dict[str, RowLook]:
        """What rows look like in every figure."""
        return looks_of(self.report)

    def look(self, name: str) -> RowLook:
        return self.looks.get(name, RowLook(GREY, "o", "-", ""))

    def class_name(self, label: int) -> str:
        """The name of a class, shortened for a figure."""
        return named(self.report.data.class_name(label))


def name_headlines(numbers: Iterable[Number]) -> dict[str, Number]:
    """Return the first PR, AR or NPPR that has a value of every name."""
    found: dict[str, Number] = {}
    for row in numbers:
        if row.metric in HUES and not row.with_references and row.value is not None:
            found.setdefault(row.name, row)
    return found


def print_percent(value: float) -> str:
    """A share as text.

    >>> print_percent(0.1234)
    '12.3 %'
    """
    return f"{printed_numbers.percent(value)} %"


def interval(row: Number, used: StatedInterval | None = None) -> str:
    """Return a value with its own interval, or with another, as text."""
    assert row.value is not None
    low, high = ends_of(row, used)
    ends = printed_numbers.percent(low, "at-least"), printed_numbers.percent(high, "at-most")
    return f"{print_percent(row.value)} ({ends[0]}-{ends[1]} %)"


def ends_of(row: Number, used: StatedInterval | None = None) -> tuple[float, float]:
    """Return the ends of a number's own interval, or of another."""
    found = used or row.own
    assert found is not None
    return found.ends


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure; `id` names its files, `alt` describes it in words, `caption` explains it."""

    id: str
    title: str
    alt: str
    caption: str
    figure: Figure

    @property
    def svg(self) -> Markup:
        """SVG for the middle of a page: as wide as its place, in the page's colour."""
        return Markup(_text(_cleaned_tree(self, "currentColor")))

    @property
    def svg_file(self) -> str:
        """SVG for a separate file: black on white."""
        root = _cleaned_tree(self, "#000000")
        paper = {"width": "100%", "height": "100%", "fill": "#ffffff"}
        root.insert(1, ElementTree.Element(f"{{{SVG}}}rect", paper))
        width, height = root.attrib["viewBox"].split()[2:]
        root.attrib.update({"width": f"{width}pt", "height": f"{height}pt"})
        return '<?xml version="1.0" encoding="utf-8"?>\n' + _text(root)


def save(drawn: Iterable[Drawn], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure in each format, black on white, as `<id>.<format>`; the paths written."""
    paths = []
    for each in drawn:
        for form in formats:
            path = folder / f"{each.id}.{form}"
            if form == "svg":
                write_whole(path, each.svg_file)
            else:
                content, dateless = io.BytesIO(), {"CreationDate": None} if form == "pdf" else {}
                with styled():
                    each.figure.savefig(content, format=form, facecolor="white", metadata=dateless)
                write_whole(path, content.getvalue())
            paths.append(path)
    return paths


SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
FONTS = "system-ui, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif"
DROPPED = ("metadata", "style")
"""Elements that would style the page around the figure, or describe the program that drew it."""

JOINTS = {"stroke-linejoin": "round", "stroke-linecap": "butt"}
"""The content of the dropped style sheet."""

LONG = re.compile(r"-?\d+\.\d{3,}")
DECLARATION = re.compile(r"\s*([a-z-]+)\s*:\s*([^;]+)")
FONT = re.compile(r"(?P<before>.*?)(?P<size>[\d.]+(?:px|pt))\s+(?P<family>.+)")


def _cleaned_tree(drawn: Drawn, ink: str) -> ElementTree.Element:
    """The tree of a figure without sizes and style attributes, which the policy of a page refuses."""
    file = io.StringIO()
    with styled(), mpl.rc_context({"svg.hashsalt": drawn.id}):
        drawn.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in DROPPED:
                parent.remove(child)
    for element in root.iter():
        element.attrib = {
            name: value
            for key, text in element.attrib.items()
            for name, value in _attributes(key, _cleaned(key, text, drawn.id, ink)).items()
        }
        if element.text is not None and not element.text.strip() and len(element):
            element.text = None
        element.tail = None
    for attribute in ("version", "height"):
        root.attrib.pop(attribute, None)
    alternative = {"role": "img", "aria-label": drawn.alt, "id": f"figure-{drawn.id}"}
    root.attrib.update({"width": "100%", **alternative, **JOINTS})
    heading = ElementTree.Element(f"{{{SVG}}}title")
    heading.text = drawn.title
    root.insert(0, heading)
    return root


def _cleaned(key: str, value: str, name: str, ink: str) -> str:
    """An attribute's value: ids and references with the figure's name, ink, fonts, fewer digits."""
    if key == "id":
        return f"{name}-{value}"
    if key == XLINK:
        return f"#{name}-{value[1:]}" if value.startswith("#") else value
    if key == "viewBox":
        return " ".join(f"{float(part):g}" for part in value.split())
    value = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", value)
    value = re.sub(INK, ink, value, flags=re.IGNORECASE)
    value = value.replace("'DejaVu Sans', sans-serif", FONTS).replace("'DejaVu Sans'", FONTS)
    if key in ("d", "x", "y", "width", "height", "transform", "points"):
        value = LONG.sub(lambda found: f"{float(found.group()):.2f}", value)
    return re.sub(r"\s+", " ", value).strip()


def _attributes(key: str, value: str) -> dict[str, str]:
    """An attribute; a style attribute as one attribute for each of its declarations.

    >>> _attributes("style", "fill: none; font: bold 9px 'A', serif")
    {'fill': 'none', 'font-size': '9px', 'font-family': "'A', serif", 'font-weight': 'bold'}
    """
    if key != "style":
        return {"href" if key == XLINK else key: value}
    found = {name: text.strip() for name, text in DECLARATION.findall(value)}
    font = FONT.fullmatch(found.pop("font", ""))
    if font:
        weight = {"font-weight": "bold"} if "bold" in font["before"] else {}
        found |= {"font-size": font["size"], "font-family": font["family"], **weight}
    return found


def _text(root: ElementTree.Element) -> str:
    """The tree as text; SVG is the namespace that needs no prefix."""
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
