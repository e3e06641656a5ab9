"""Reading the folder of a finished run; what cannot be read is said in one line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nppr.errors import RunFolderError
from nppr.report.checked import check_evidence, check_per_input
from nppr.report.evidence import Evidence, read_evidence
from nppr.report.facts import check_facts
from nppr.report.per_input import FILE as PER_INPUT
from nppr.report.per_input import PerInput, read_per_input
from nppr.report.schema import SCHEMA_VERSION, Report, read_report

__all__ = ["REPORT", "RunFiles", "read_run"]

REPORT = "report.json"
FIELD = re.compile(r'"([A-Za-z_]+)"\s*:')


@dataclass(frozen=True, eq=False)
class RunFiles:
    """What a run folder holds to be read; only the report must be there."""

    path: Path
    report: Report
    per_input: PerInput | None
    evidence: Evidence | None


def read_run(path: str | Path) -> RunFiles:
    """The files of a finished run, from its folder or its `report.json`."""
    folder = Path(path)
    if folder.name == REPORT and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        what = "which is a file" if folder.exists() else "which does not exist"
        raise RunFolderError(
            f"`run` must be the folder of a run, got {str(path)!r}, {what}."
            " Example: nppr report runs/mine"
        )
    file = folder / REPORT
    if not file.exists():
        raise RunFolderError(_unfinished(folder))
    _check_text(file)
    report = read_report(file)
    check_facts(report, file)
    inputs = folder / PER_INPUT
    per_input = read_per_input(inputs) if inputs.exists() else None
    if per_input is not None:
        check_per_input(per_input, report, inputs)
    evidence = read_evidence(folder)
    if evidence is not None:
        check_evidence(evidence, folder)
    return RunFiles(folder, report.with_inputs(per_input, evidence), per_input, evidence)


def _unfinished(folder: Path) -> str:
    if (folder / "run.json").exists():
        return (
            f"`run` must be a finished run, {str(folder)!r} holds one without a {REPORT}."
            " Repeat its command with --resume to finish it."
        )
    return (
        f"`run` must be a folder that nppr has written, {str(folder)!r} holds no {REPORT}."
        " Example: nppr report runs/mine"
    )


def _check_text(file: Path) -> None:
    """Raise unless the file is JSON of a schema that can be read; say what is wrong where."""
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text)
    except json.JSONDecodeError as error:
        before = FIELD.findall(text[: error.pos])
        where = f"behind field {before[-1]!r}, " if before else ""
        raise RunFolderError(
            f"`run` must hold a whole {REPORT}, {file} is cut off or edited {where}line"
            f" {error.lineno}: {error.msg}. Repeat the run's command to write it again."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(
            f"`run` must hold a readable {REPORT}, got {file}: {error}."
        ) from error
    if not isinstance(content, dict):
        raise RunFolderError(f"`run` must hold a {REPORT} with fields, {file} holds none.")
    _check_version(content, file)


def _check_version(content: dict[str, Any], file: Path) -> None:
    found = content.get("schema_version")
    if isinstance(found, int) and found > SCHEMA_VERSION:
        wrote = content.get("nppr_version")
        raise RunFolderError(
            f"`run` must have a report of schema version {SCHEMA_VERSION} for nppr"
            f" {version('nppr')}, {file} has {found}"
            + (
                f" and was written by nppr {wrote}. Read it with nppr {wrote} or later."
                if isinstance(wrote, str)
                else ". Read it with the version of nppr that wrote it."
            )
        )
