"""Figures of a page: vector graphics inside the file, cleaned so that its policy and theme hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from nppr.report.figures import Drawn, as_svg

__all__ = ["PageFigure", "inlined", "page_figures"]

STYLED = re.compile(r'\sstyle="([^"]*)"')
DECLARATION = re.compile(r"\s*([a-z-]+)\s*:\s*([^;]+)")
FONT = re.compile(r"(?P<before>.*?)(?P<size>[\d.]+(?:px|pt))\s+(?P<family>.+)")
BLOCKS = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL
)
NAMED = re.compile(r'\sid="([^"]+)"')
REFERRED = re.compile(r'(href="#|url\(#)([^")]+)')
ROOT = re.compile(r"<svg\b([^>]*)>")
SIZED = re.compile(r'\s(width|height|role|aria-label)="[^"]*"')


@dataclass(frozen=True)
class PageFigure:
    """A figure with its text alternative; `svg` is the text of an SVG file."""

    id: str
    title: str
    alt: str
    caption: str
    svg: str

    @property
    def markup(self) -> Markup:
        """The figure, ready to stand in a page."""
        return inlined(self.svg, self.id, self.alt)


def page_figures(drawn: Sequence[Drawn]) -> list[PageFigure]:
    """Figures of a run as those of a page."""
    return [PageFigure(each.id, each.title, each.alt, each.caption, as_svg(each)) for each in drawn]


def inlined(svg: str, name: str, alt: str) -> Markup:
    """An SVG file as a part of a page.

    Style attributes, which the policy refuses, become attributes of the same meaning; names get the
    figure's in front, so that two figures do not share any; the size follows the page's width.
    """
    text = BLOCKS.sub("", svg).strip()
    text = STYLED.sub(_attributes, text)
    text = NAMED.sub(lambda found: f' id="{name}-{found[1]}"', text)
    text = REFERRED.sub(lambda found: f"{found[1]}{name}-{found[2]}", text)
    text = ROOT.sub(
        lambda found: f'<svg role="img" aria-label="{escape(alt)}"{SIZED.sub("", found[1])}>',
        text,
        1,
    )
    return Markup(text)


def _attributes(styled: re.Match[str]) -> str:
    """The declarations of a style attribute as attributes."""
    found: dict[str, str] = dict(DECLARATION.findall(styled[1]))
    font = FONT.fullmatch(found.pop("font", "").strip())
    if font:
        weight = {"font-weight": "bold"} if "bold" in font["before"] else {}
        found |= {"font-size": font["size"], "font-family": font["family"], **weight}
    return "".join(f' {name}="{value.strip()}"' for name, value in found.items())
