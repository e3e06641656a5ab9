"""For the reference: examples in docstrings (`>>>`) become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^>>> .*\n?(?:^(?!\s*$).*\n?)*")
"""A doctest and its output, up to an empty line."""


class FencedExamples(griffe.Extension):
    """Puts a fence around every doctest, which Markdown would otherwise take for a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object when it is loaded."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )
