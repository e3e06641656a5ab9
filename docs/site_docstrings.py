"""For the reference: doctests become blocks of code, and private fields are left out."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^>>> .*\n?(?:^(?!\s*$).*\n?)*")
"""A doctest and its output, up to an empty line."""


class PlainDocstrings(griffe.Extension):
    """Puts a fence around every doctest, which Markdown would otherwise take for a quotation."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Drop private fields, which would be arguments in the signature of a dataclass."""
        for name in [name for name, each in cls.members.items() if each.is_attribute]:
            if name.startswith("_") and "dataclass" in cls.labels:
                del cls.members[name]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object when it is loaded."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )
