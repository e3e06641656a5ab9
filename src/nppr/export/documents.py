"""Documents for assessors, and their registry.

A new document is a module of this folder that adds itself to the registry, or an entry point of an
installed package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nppr.errors import SpecError
from nppr.export.claims import FiledReport
from nppr.system.registry import Registry


@dataclass(frozen=True)
class Document:
    """A kind of document.

    files       functions that return the text of a file from a report, by the suffix of the file
    takes_gate  whether it argues for the requirements that `nppr gate` decided
    """

    files: Mapping[str, Callable[[FiledReport], str]]
    takes_gate: bool = False

    def __post_init__(self) -> None:
        for suffix in self.files or [""]:
            if not suffix.startswith(".") or suffix != Path(suffix).name:
                raise SpecError(
                    f"`files` must have the suffix of each file, got {[*self.files]}. Example: .md"
                )


EXPORTS: Registry[Document] = Registry("export", "nppr.exports", "nppr.export.documents:Document")
"""All documents by the name that `nppr export --to` has for them."""
