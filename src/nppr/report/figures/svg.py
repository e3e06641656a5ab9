"""matplotlib's SVG made fit to stand in a page beside others.

Ids bear the figure's name, the ink takes the page's colour, text stays text in the page's font, and
nothing refers to anything outside. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from nppr.report.figures.style import INK, styled

__all__ = ["as_document", "as_inline"]

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
FONTS = "system-ui, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif"
DROPPED = ("metadata", "style")
"""Parts that would speak about the page around the figure, or about the program that drew it."""

JOINTS = {"stroke-linejoin": "round", "stroke-linecap": "butt"}
"""What the dropped style sheet says."""

PIXELS = 100
"""Pixels of an inch at most: text is then equally large in all figures of a page."""

LONG = re.compile(r"-?\d+\.\d{3,}")


def as_inline(figure: Figure, name: str, title: str, alt: str) -> str:
    """SVG for the middle of a page: as wide as its place, in the page's colour."""
    return _text(_rendered(figure, name, title, alt, ink="currentColor"))


def as_document(figure: Figure, name: str, title: str, alt: str) -> str:
    """SVG for a file of its own: black on white."""
    root = _rendered(figure, name, title, alt, ink="#000000")
    paper = ElementTree.Element(f"{{{SVG}}}rect", width="100%", height="100%", fill="#ffffff")
    root.insert(1, paper)
    left, top, width, height = root.attrib["viewBox"].split()
    del root.attrib["style"]
    root.set("width", f"{width}pt")
    root.set("height", f"{height}pt")
    assert (left, top) == ("0", "0")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + _text(root)


def _rendered(figure: Figure, name: str, title: str, alt: str, ink: str) -> ElementTree.Element:
    """The tree of a figure, without sizes of its own."""
    file = io.StringIO()
    with styled(), mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in DROPPED:
                parent.remove(child)
    for element in root.iter():
        element.attrib = {
            key: _cleaned(key, value, name, ink) for key, value in element.attrib.items()
        }
        if XLINK in element.attrib:
            element.set("href", element.attrib.pop(XLINK))
        if element.text is not None and not element.text.strip() and len(element):
            element.text = None
        element.tail = None
    for attribute in ("version", "height"):
        root.attrib.pop(attribute, None)
    widest = float(root.attrib["viewBox"].split()[2]) / 72 * PIXELS
    root.attrib.update({"width": "100%", "role": "img", "aria-label": alt, "id": f"figure-{name}"})
    root.attrib.update(JOINTS)
    root.set("style", f"max-width: {widest:.0f}px")
    heading = ElementTree.Element(f"{{{SVG}}}title")
    heading.text = title
    root.insert(0, heading)
    return root


def _cleaned(key: str, value: str, name: str, ink: str) -> str:
    """One attribute: ids and references with the figure's name, ink, fonts, fewer digits."""
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


def _text(root: ElementTree.Element) -> str:
    """The tree as text; SVG is the namespace that needs no prefix."""
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
