"""The folder of a run: its settings, finished blocks, and at the end the report.

run.json         what determines the numbers, and how the run was divided
blocks/          finished blocks of each source, for --resume
rare/            finished groups of inputs of splitting, for --resume
fit/             the state of a fit and its finished stages, for --resume
distributions/   the learned distributions
report.json      the truth
per_input.csv    one line per input and source
rare.csv         one line per input that splitting looked at
evidence.safetensors, report.html   what the page shows beside numbers, and the page
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nppr.checkpoint import FileStore
from nppr.distributed import first, world
from nppr.errors import RunFolderError
from nppr.rare import Rare, rare_csv
from nppr.report.evidence import FILE as EVIDENCE
from nppr.report.evidence import Evidence, write_evidence
from nppr.report.per_input import FILE as PER_INPUT
from nppr.report.per_input import PerInput
from nppr.report.schema import Report

__all__ = ["RunFolder"]

FORMAT = 1
RARE = "rare.csv"
RESULTS = ("report.json", PER_INPUT, RARE, EVIDENCE, "report.html")


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one run; `identity` is a hash of what determines its numbers."""

    path: Path
    identity: str

    @classmethod
    def open(
        cls, path: str | Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> RunFolder:
        """Take a folder for a run with these settings, or say why it cannot be had."""
        known = json.loads(json.dumps(settings))
        folder = cls(Path(path), _hash(json.dumps(known, sort_keys=True)))
        held = None if overwrite and not resume else _held(folder.path)
        if held is not None:
            folder._check_held(held, known, resume=resume)
        elif not overwrite and folder._strangers():
            raise RunFolderError(
                f"`out` must be free or hold a run, {str(path)!r} holds {folder._strangers()[0]}"
                " without a run.json. Choose another folder, or add --overwrite to replace it."
            )
        try:
            if held is None or not resume:
                folder._clear()
                (folder.path / "blocks").mkdir(parents=True, exist_ok=True)
                folder._write("run.json", _text({"format": FORMAT, "settings": known}))
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunFolderError(
                f"`out` must be a folder that can be written, got {str(path)!r}: {reason}."
            ) from error
        return folder

    @staticmethod
    def division(path: str | Path) -> dict[str, Any]:
        """How the run in a folder was divided: its micro-batch and the classifier's form."""
        division = (_held(Path(path)) or {}).get("division")
        return division if isinstance(division, dict) else {}

    @property
    def report_path(self) -> Path:
        """Where the report is."""
        return self.path / "report.json"

    def record_division(self, division: Mapping[str, Any]) -> None:
        """Keep how the run is divided, for a resume."""
        self.note("division", dict(division))

    def note(self, name: str, value: Any) -> None:
        """Keep a fact of a run under way, for a resume."""
        if world().is_first:
            held = _held(self.path) or {}
            self._write("run.json", _text({**held, name: value}))

    def noted(self, name: str) -> Any:
        """A fact that was kept, or None."""
        return first(lambda: (_held(self.path) or {}).get(name))

    def store(self, source: str) -> FileStore:
        """Where a source keeps its finished blocks."""
        slug = re.sub(r"[^a-z0-9.=-]+", "_", source.lower())[:60]
        path = self.path / "blocks" / f"{slug}-{_hash(source)[:8]}.safetensors"
        return FileStore(path, identity=f"{self.identity} {source}")

    def write(
        self,
        report: Report,
        per_input: PerInput,
        evidence: Evidence | None = None,
        rare: Mapping[str, Rare] | None = None,
    ) -> None:
        """Write the inputs' results and what is shown of them, then the report; the first rank does."""

        def write() -> None:
            self._write(PER_INPUT, per_input.to_csv())
            if evidence is not None:
                write_evidence(self.path, evidence)
            if rare:
                self._write(RARE, rare_csv(rare))
            self._write("report.json", report.to_json())

        first(write)

    def _check_held(self, held: dict[str, Any], settings: Any, *, resume: bool) -> None:
        before = held.get("settings", {})
        if before != settings:
            names = _differences(before, settings)
            raise RunFolderError(
                f"`out` must be free or hold this run, {str(self.path)!r} holds one with another"
                f" {', '.join(names)}. Choose another folder, or add --overwrite to"
                " replace it."
            )
        if not resume and not self.report_path.exists():
            raise RunFolderError(
                f"`out` holds an unfinished run of these settings: {str(self.path)!r}."
                " Add --resume to continue it, or --overwrite to start again."
            )

    def _strangers(self) -> list[str]:
        """Results that are in the folder and of which no run.json says whose they are."""
        found = [name for name in RESULTS if (self.path / name).exists()]
        return found + [str(path.relative_to(self.path)) for path in self._block_files()]

    def _block_files(self) -> list[Path]:
        """What a run leaves beside its results."""
        patterns = (
            "blocks/*.safetensors",
            "fit/*.safetensors",
            "rare/*.safetensors",
            "distributions/nppr*.*",
            *(f"figures/*.{kind}" for kind in ("svg", "png", "pdf")),
            "*/*.partial",
        )
        return sorted(path for pattern in patterns for path in self.path.glob(pattern))

    def _clear(self) -> None:
        """Remove what a run of ours leaves, and nothing else."""
        for path in self._block_files():
            path.unlink()
        for name in (*RESULTS, "run.json"):
            (self.path / name).unlink(missing_ok=True)
            (self.path / f"{name}.partial").unlink(missing_ok=True)

    def clear_rank(self) -> None:
        """Remove what a rank other than the first has left of another run, on a disk of its own."""
        if world().is_first:
            return
        patterns = (f"blocks/*.rank{world().rank}.safetensors", "rare/*.safetensors")
        for path in [path for pattern in patterns for path in self.path.glob(pattern)]:
            path.unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        partial = self.path / (name + ".partial")
        partial.write_text(text, encoding="utf-8", newline="")
        os.replace(partial, self.path / name)


def _held(folder: Path) -> dict[str, Any] | None:
    """What run.json says, or None where there is no run."""
    path = folder / "run.json"
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"`out` must hold a readable run.json, got {path}: {error}."
            " Choose another folder, or add --overwrite to replace it."
        ) from error
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise RunFolderError(
            f"`out` must hold a run of this version of nppr, {path} is of another one."
            " Choose another folder, or add --overwrite to replace it."
        )
    return held


def _differences(before: Any, now: Any) -> list[str]:
    """Names of the entries in which two trees of settings differ, the innermost ones."""
    names: list[str] = []
    for name in {*before, *now}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        inner = isinstance(old, dict) and isinstance(new, dict)
        names += _differences(old, new) if inner else [name]
    return sorted(set(names))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
