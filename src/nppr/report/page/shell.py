"""The shell of every page: head, style, script, figures, and the policy that admits nothing else.

A page is one file. Its policy admits the style and the script below by their hashes, images from data
URIs, and nothing from elsewhere. So bodies hold no `style` attributes and no `onclick`: positions are
SVG attributes, looks are classes. `<table class="sortable">` sorts by its head; a cell may give the
value to sort by as `data-sort`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nppr.report.numbers import percent

_STYLED = re.compile(r'\sstyle="([^"]*)"')
_DECLARATION = re.compile(r"\s*([a-z-]+)\s*:\s*([^;]+)")
_FONT = re.compile(r"(?P<before>.*?)(?P<size>[\d.]+(?:px|pt))\s+(?P<family>.+)")


def page_shell(title: str, body: Markup) -> str:
    """A whole page around a body; the title is escaped, the body is taken as it is."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
        f" style-src {_hashed(style)}; script-src {_hashed(script)}"
    )
    return str(
        rendered(
            "shell.html.j2",
            title=title,
            body=body,
            policy=policy,
            style=Markup(style),
            script=Markup(script),
            version=version("nppr"),
        )
    )


def rendered(template: str, *, package: str = "nppr.report.page", **values: Any) -> Markup:
    """A template of a package with these values, each escaped unless it is Markup."""
    return Markup(_environment(package).get_template(template).render(**values))


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page; `svg` is inline SVG with an id and a text alternative of its own."""

    id: str
    title: str
    caption: str
    svg: str

    @property
    def markup(self) -> Markup:
        """The figure, its style attributes, which the policy refuses, as attributes of their own."""
        return Markup(_STYLED.sub(_attributes, self.svg))


def _attributes(styled: re.Match[str]) -> str:
    """The declarations of a style attribute as attributes."""
    found: dict[str, str] = dict(_DECLARATION.findall(styled[1]))
    font = _FONT.fullmatch(found.pop("font", "").strip())
    if font:
        weight = {"font-weight": "bold"} if "bold" in font["before"] else {}
        found |= {"font-size": font["size"], "font-family": font["family"], **weight}
    return "".join(f' {name}="{value.strip()}"' for name, value in found.items())


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _asset(name: str) -> str:
    return (files("nppr.report.page") / name).read_text(encoding="utf-8")


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["percent"] = percent
    return environment
