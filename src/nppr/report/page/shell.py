"""The shell of every page: head, style, script, figures, and the policy that admits nothing else.

A page is one file. Its policy admits the style and the script below by their hashes, images from data
URIs, and nothing from elsewhere. So bodies hold no `style` attributes and no `onclick`: positions are
SVG attributes, looks are classes. `<table class="sortable">` sorts by its head; a cell may give the
value to sort by as `data-sort`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nppr.errors import mark_controls
from nppr.report.printed_numbers import percent


def page_shell(title: str, body: Markup) -> str:
    """A whole page around a body; the title is escaped, the body is taken as it is."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
        f" style-src {_hashed(style)}; script-src {_hashed(script)}"
    )
    page = rendered(
        "shell.html.j2",
        title=title,
        body=body,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        version=version("nppr"),
    )
    return mark_controls(str(page))


def rendered(template: str, *, package: str = "nppr.report.page", **values: Any) -> Markup:
    """A template of a package with these values, each escaped unless it is Markup."""
    return Markup(_environment(package).get_template(template).render(**values))


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
