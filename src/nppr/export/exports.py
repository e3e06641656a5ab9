"""A run as documents that an assessor files, from its report.json alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nppr.errors import SpecError, mark_controls
from nppr.export.claims import FiledReport, read_filed
from nppr.export.cyclonedx_card import cyclonedx_json
from nppr.export.safety_case import safety_case_json, safety_case_mermaid
from nppr.export.technical_documentation import technical_documentation
from nppr.report.findings import lines_of, shares_of
from nppr.report.per_input import PER_INPUT, read_per_input
from nppr.report.run_files import report_path
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole

Export = Callable[[FiledReport], str]

SAFETY_CASE = "safety-case"

EXPORTS: Mapping[str, Mapping[str, Export]] = {
    SAFETY_CASE: {".json": safety_case_json, ".mmd": safety_case_mermaid},
    "technical-documentation": {".md": technical_documentation},
    "cyclonedx": {".cdx.json": cyclonedx_json},
}
"""Files by kind of document: suffix, and what makes its text."""


def write_exports(
    run: str | Path, kind: str, folder: Path | None = None, gate: Path | None = None
) -> list[Path]:
    """Write the documents of a kind into a folder, by default `exports` of the run; their paths.

    `gate` is the JSON of a gate on the same classifier, whose requirements a safety case argues for.
    """
    if gate is not None and kind != SAFETY_CASE:
        raise SpecError(f"`gate` must be given with {SAFETY_CASE}, got it with {kind}.")
    source = report_path(run)
    filed = read_filed(source, gate)
    lines = source.with_name(PER_INPUT)
    if lines.exists():  # a report that was edited does not agree with its inputs
        shares_of(filed.report, lines_of(read_per_input(lines), source.parent), source.parent)
    place = folder or source.parent / "exports"
    texts = {place / (kind + suffix): make for suffix, make in EXPORTS[kind].items()}
    manifest = Manifest(source.parent, "run")
    if folder is None and manifest.exists:
        manifest.add(*texts)
    for path, make in texts.items():
        write_whole(path, mark_controls(make(filed)))
    return list(texts)
