"""Write documents for assessors from the `report.json` of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nppr.errors import SpecError, mark_controls, unknown
from nppr.export.claims import FiledReport, read_filed
from nppr.export.documents import EXPORTS as EXPORTS
from nppr.report.findings import lines_of, shares_of
from nppr.report.per_input import PER_INPUT, read_per_input
from nppr.report.run_files import report_path
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole


def write_exports(
    run: str | Path, kind: str, folder: Path | None = None, gate: Path | None = None
) -> list[Path]:
    """Write the files of a document and return their paths.

    They go into a folder, by default `exports` of the run. `gate` is the JSON of a gate on the same
    classifier, for a document that argues for its requirements.
    """
    if kind not in EXPORTS:
        raise unknown("to", kind, EXPORTS)
    document = EXPORTS[kind]
    if gate is not None and not document.takes_gate:
        takers = [name for name, each in EXPORTS.items() if each.takes_gate]
        raise SpecError(f"`gate` must be given with {' or '.join(takers)}, got it with {kind}.")
    source = report_path(run)
    filed = read_filed(source, gate)
    lines = source.with_name(PER_INPUT)
    if lines.exists():  # a report that was edited does not agree with its inputs
        shares_of(filed.report, lines_of(read_per_input(lines), source.parent), source.parent)
    place = folder or source.parent / "exports"
    with EXPORTS.guarded(document):
        texts = {
            place / (kind + suffix): _text_of(make, filed)
            for suffix, make in document.files.items()
        }
    manifest = Manifest(source.parent, "run")
    if folder is None and manifest.exists:
        manifest.add(*texts)
    for path, text in texts.items():
        write_whole(path, text)
    return list(texts)


def _text_of(make: Callable[[FiledReport], str], filed: FiledReport) -> str:
    """Return the text of a file, with control characters as visible marks."""
    text = make(filed)
    if not isinstance(text, str):
        raise TypeError(f"the function of a file must return text, got {type(text).__name__}")
    return mark_controls(text)
