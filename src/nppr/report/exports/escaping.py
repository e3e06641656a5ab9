"""Plain text in languages in which some letters have a meaning."""

from __future__ import annotations

import re

__all__ = ["latex_text", "md_text"]

LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$",
    "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip
"""Brackets and stars stand in braces: at the start of a row they would belong to the line break."""

MARKDOWN = re.compile(r"([\\|`*_\[\]<>#])")


def latex_text(text: str) -> str:
    r"""Plain text as LaTeX.

    >>> latex_text("50 % of a_b, ±1")
    '50 \\% of a\\_b, $\\pm$1'
    """
    return "".join(LATEX.get(letter, letter) for letter in _one_line(text))


def md_text(text: str) -> str:
    r"""Plain text as Markdown within a table.

    >>> md_text("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return MARKDOWN.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
