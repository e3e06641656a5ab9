"""Documents for assessors, and their registry.

A new document is a module of this folder with a line in the registry, or an entry point of an installed
package. Nothing here imports PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nppr.errors import SpecError
from nppr.system.registry import Registry

if TYPE_CHECKING:
    from nppr.export.claims import FiledReport


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


def as_json(make: Callable[[FiledReport], Any]) -> Callable[[FiledReport], str]:
    """Return a function that returns what `make` returns as JSON."""
    return lambda filed: json.dumps(make(filed), indent=2, ensure_ascii=False) + "\n"


EXPORTS: Registry[Document] = Registry(
    "export",
    "nppr.exports",
    "nppr.export.documents:Document",
    own={
        "cyclonedx": "nppr.export.cyclonedx_card:CYCLONEDX_CARD",
        "safety-case": "nppr.export.safety_case:SAFETY_CASE",
        "technical-documentation": "nppr.export.technical_documentation:TECHNICAL_DOCUMENTATION",
    },
)
"""All documents by the name that `nppr export --to` has for them."""
