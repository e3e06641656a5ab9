"""The report with what renders it, and the folder of a finished run.

A file that cannot be read gives one clear line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version as current
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, PrivateAttr, ValidationError

from nppr.errors import RunFolderError, SpecError
from nppr.formats import REPORT, run_folder_of
from nppr.report.evidence import Evidence, read_evidence
from nppr.report.findings import lines_of, shares_of
from nppr.report.model import SCHEMA_VERSION, ReportRecord
from nppr.report.per_input import PER_INPUT, PerInput, read_per_input
from nppr.report.results_table import as_text, summary_of, table_of
from nppr.system.bounded import read_text
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole

if TYPE_CHECKING:
    from pandas import DataFrame

PAGE = "report.html"
_AGAIN = "Repeat the run's command to write it again."

_Model = TypeVar("_Model", bound=BaseModel)


class Report(ReportRecord):
    """Everything one assessment found, and how; fields: `docs/report.md`."""

    _per_input: PerInput | None = PrivateAttr(None)
    _evidence: Evidence | None = PrivateAttr(None)

    def with_inputs(self, per_input: PerInput | None, evidence: Evidence | None) -> Report:
        """The same report with the other files of its run folder."""
        report = self.model_copy()
        report._per_input, report._evidence = per_input, evidence
        return report

    @property
    def per_input(self) -> PerInput:
        """One line per input and source; a report that was read alone has none."""
        if self._per_input is None:
            raise RunFolderError(
                "`per_input` must be read with the report, this one was read without its folder."
                " Example: nppr.read_run(FOLDER).report"
            )
        return self._per_input

    def __repr__(self) -> str:
        return f"<Report: {summary_of(self)}>"

    def __str__(self) -> str:
        return self.table()

    def table(self, width: int = 110) -> str:
        """The results as plain text."""
        return as_text(self, width)

    def to_html(self) -> str:
        """The page for readers: one HTML file that needs no network."""
        from nppr.report.page import page_of  # most runs show no page

        return page_of(self, self._per_input, self._evidence)

    def to_pandas(self) -> DataFrame:
        """Return the table of results as a pandas DataFrame: one row per source and radius.

        CSV and JSON have the same columns. Fractions are numbers from 0 to 1.
        `direction` states how to read `value`, `low` and `high`: "at most" (only `high` applies to the
        worst noise), "at least" or "estimate".
        """
        try:
            from pandas import DataFrame  # an extra: most runs need none
        except ImportError as error:
            raise SpecError(
                "`to_pandas` needs the package pandas, which cannot be imported."
                " Install it: pip install 'nppr[pandas]'"
            ) from error
        return DataFrame(table_of(self, other_radii=True).records())

    def _repr_html_(self) -> str:
        from nppr.report.page import fragment_of

        return fragment_of(self)


@dataclass(frozen=True, eq=False)
class RunFiles:
    """The readable files of a run folder; only the report is required."""

    path: Path
    report: Report
    per_input: PerInput | None
    evidence: Evidence | None

    @classmethod
    def of(cls, report: Report, path: Path) -> RunFiles:
        """The files of a run whose report is in memory, with what it was written with."""
        return cls(path, report, report._per_input, report._evidence)


def read_run(path: str | Path) -> RunFiles:
    """The files of a finished run, from its folder or its `report.json`."""
    folder = report_path(path).parent
    report = read_report(folder / REPORT)
    inputs = folder / PER_INPUT
    per_input = read_per_input(inputs) if inputs.exists() else None
    if per_input is not None:
        for fault in per_input.faults(report.data.classes, report.data.inputs.evaluate):
            raise RunFolderError(
                f"`run` must hold the {PER_INPUT} of its {REPORT}, in {inputs} {fault}. {_AGAIN}"
            )
        shares_of(report, lines_of(per_input, folder), folder)
    evidence = read_evidence(folder)
    return RunFiles(folder, report.with_inputs(per_input, evidence), per_input, evidence)


def report_path(path: str | Path) -> Path:
    """The `report.json` of a finished run, from its folder or from itself."""
    folder = run_folder_of(path)
    if (folder / REPORT).exists():
        return folder / REPORT
    if (folder / "run.json").exists():
        raise RunFolderError(
            f"`run` must be a finished run, {str(folder)!r} holds one without a {REPORT}."
            " Repeat its command with --resume to finish it."
        )
    raise RunFolderError(
        f"`run` must be a folder that nppr has written, {str(folder)!r} holds no {REPORT}."
        " Example: nppr report runs/mine"
    )


def read_report(path: str | Path) -> Report:
    """Read a `report.json` alone."""
    report = read_model(path, Report, SCHEMA_VERSION, "report")
    for field, expected in _number_faults(report):
        raise RunFolderError(f"`report` field {field!r} in {path} must be {expected}. {_AGAIN}")
    return report


def schema_text() -> str:
    """Return the JSON Schema of `report.json`, as it is published in `docs/report.schema.json`."""
    schema = ReportRecord.model_json_schema(mode="serialization")
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | schema, indent=2) + "\n"


def read_model(path: str | Path, model: type[_Model], version: int, name: str) -> _Model:
    """The record in a JSON file that nppr wrote, of this schema version; errors call it `name`."""
    path = Path(path)
    try:
        text = read_text(path)
        _check_version(text, version, name, path)
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise RunFolderError(_fault(error.errors(include_url=False)[0], name, path)) from error
    except (OSError, UnicodeDecodeError, SpecError) as error:
        raise RunFolderError(f"`{name}` must be readable, cannot read {path}: {error}") from error


class _Written(BaseModel):
    """Which version wrote a file."""

    schema_version: Any = None
    nppr_version: Any = None


def _check_version(text: str, version: int, name: str, path: Path) -> None:
    found = _Written.model_validate_json(text)
    if found.schema_version != version:
        is_other = found.nppr_version != current("nppr")
        older = ", or read the file with that release" if is_other else ""
        raise RunFolderError(
            f"`{name}` must have schema version {version}, which nppr {current('nppr')} reads, got"
            f" {found.schema_version!r:.80}: nppr {found.nppr_version!s:.80} wrote {path}. Repeat its"
            f" command in a new folder{older}."
        )


def _fault(first: Any, name: str, path: Path) -> str:
    """Return pydantic's first error as one line, without the names that a union adds to the place."""
    if first["type"] == "json_invalid":
        return (
            f"`{name}` must be a complete file, {path} is cut off or edited: {first['msg']}."
            f" {_AGAIN}"
        )
    places = pairwise(["", *map(str, first["loc"])])
    field = ".".join(part for before, part in places if before != "subject")
    got = f", got {first['input']!r:.80}" if first["type"] != "missing" else ""
    return f"`{name}` field {field!r} in {path} is wrong: {first['msg']}{got}. {_AGAIN}"


def _number_faults(report: ReportRecord) -> Iterator[tuple[str, str]]:
    """Numbers that cannot be quoted: field and what it must be."""
    if not report.numbers:
        yield "numbers", "a list of at least one number, got none"
    tables = {"numbers": report.numbers, "other_radii": report.other_radii}
    for name, rows in tables.items():
        for place, row in enumerate(rows):
            if row.value is None:
                continue
            if row.direction is None:
                yield f"{name}.{place}.direction", "given beside a `value`, got null"
            if not row.intervals:
                yield f"{name}.{place}.intervals", "a list of at least one interval, got none"
            if row.bound and row.bound.bounded is None:
                yield f"{name}.{place}.subject.noise_set", "the set that the bound is for, got null"


def write_rendered(
    files: RunFiles, *, page: bool = True, figures: Sequence[str] = (), out: Path | None = None
) -> list[Path]:
    """Write the page (to `out`, by default into the folder), and the figures in these formats."""
    # Matplotlib takes a second to import, and reading a run needs none of it.
    from nppr.report.figures import figures_of, save

    drawn = figures_of(files.report, files.per_input, files.evidence)
    folder, manifest = files.path / "figures", Manifest(files.path, "run")
    if manifest.exists:
        images = [folder / f"{each.id}.{form}" for each in drawn for form in figures]
        manifest.add(files.path / PAGE, *images)
    written = []
    if page:
        from nppr.report.page import render  # most runs show no page

        path = out or files.path / PAGE
        write_whole(path, render(files.report, files.per_input, files.evidence, drawn))
        written.append(path)
    return written + (save(drawn, folder, figures) if figures else [])
