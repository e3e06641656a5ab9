"""The folder of a run: its settings, finished blocks, and at the end the report.

run.json         what determines the numbers, and how the run was divided
blocks/          finished blocks of each source, for --resume
report.json      the truth
per_input.csv    one line per input and source
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nppr.checkpoint import FileStore
from nppr.errors import RunFolderError
from nppr.report.schema import Report
from nppr.statistics import per_input
from nppr.types import Evaluate, Tally

__all__ = ["RunFolder", "short_hash"]

FORMAT = 1


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one run."""

    path: Path

    @classmethod
    def open(
        cls, path: str | Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> RunFolder:
        """Take a folder for a run with these settings, or say why it cannot be had."""
        folder = cls(Path(path))
        held = folder._held()
        if held is not None:
            folder._check_held(held, dict(settings), resume=resume, overwrite=overwrite)
        try:
            if not resume:
                folder._clear()
            (folder.path / "blocks").mkdir(parents=True, exist_ok=True)
            if held is None or not resume:
                folder._write("run.json", _text({"format": FORMAT, "settings": dict(settings)}))
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunFolderError(
                f"`out` must be a folder that can be written, got {str(path)!r}: {reason}."
            ) from error
        return folder

    @property
    def report_path(self) -> Path:
        """Where the report is."""
        return self.path / "report.json"

    @property
    def micro_batch(self) -> int | None:
        """The micro-batch that the run was begun with."""
        held = self._held() or {}
        value = held.get("micro_batch")
        return value if isinstance(value, int) else None

    def record_micro_batch(self, micro_batch: int) -> None:
        """Keep the micro-batch for a resume."""
        held = self._held() or {}
        self._write("run.json", _text({**held, "micro_batch": micro_batch}))

    def store(self, source: str) -> FileStore:
        """Where a source keeps its finished blocks."""
        slug = re.sub(r"[^a-z0-9.=-]+", "_", source.lower())[:60]
        return FileStore(self.path / "blocks" / f"{slug}-{short_hash(source)}.safetensors")

    def write(self, report: Report, tallies: Mapping[str, Tally[Evaluate]]) -> None:
        """Write the inputs' results, then the report."""
        partial = self.path / "per_input.csv.partial"
        with partial.open("w", newline="", encoding="utf-8") as file:
            _write_per_input(csv.writer(file), tallies, report.settings["confidence"])
        os.replace(partial, self.path / "per_input.csv")
        self._write("report.json", report.to_json())

    def _held(self) -> dict[str, Any] | None:
        """What run.json says, or None where there is no run."""
        path = self.path / "run.json"
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"`out` must hold a readable run.json, got {path}: {error}. Choose another folder."
            ) from error
        if not isinstance(held, dict) or held.get("format") != FORMAT:
            raise RunFolderError(
                f"`out` must hold a run of this version of nppr, {path} is of another one."
                " Choose another folder or add --overwrite."
            )
        return held

    def _check_held(
        self, held: dict[str, Any], settings: dict[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        if overwrite and not resume:
            return
        before, now = held.get("settings", {}), json.loads(json.dumps(settings))
        if before != now:
            names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
            raise RunFolderError(
                f"`out` must be free or hold this run, {str(self.path)!r} holds one with another"
                f" {', '.join(names)}. Choose another folder, or add --overwrite to replace it."
            )
        if not resume and not self.report_path.exists():
            raise RunFolderError(
                f"`out` holds an unfinished run of these settings: {str(self.path)!r}."
                " Add --resume to continue it, or --overwrite to start again."
            )

    def _clear(self) -> None:
        shutil.rmtree(self.path / "blocks", ignore_errors=True)
        for name in ("report.json", "per_input.csv", "run.json"):
            (self.path / name).unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        partial = self.path / (name + ".partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)


def short_hash(text: str) -> str:
    """Eight hexadecimal digits of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _write_per_input(
    writer: Any, tallies: Mapping[str, Tally[Evaluate]], confidence: float
) -> None:
    writer.writerow(
        ["index", "label", "clean_correct", "source", "draws", "right", "rate", "low", "high"]
    )
    for source, tally in tallies.items():
        low, high = per_input(tally, confidence)
        for row in range(len(tally.indices)):
            writer.writerow(
                [
                    int(tally.indices[row]),
                    int(tally.labels[row]),
                    int(tally.clean_correct[row]),
                    source,
                    tally.draws,
                    int(tally.right[row]),
                    f"{tally.rates[row]:.6g}",
                    f"{low[row]:.6g}",
                    f"{high[row]:.6g}",
                ]
            )
