"""The folder of a run: its settings, finished blocks, and at the end the report.

lock             empty; the system locks it while a process works in the folder
run.json         what determines the numbers, and how the run was divided; marks the folder as a run's
manifest.json    the files that the run has written: what --overwrite removes
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

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nppr.errors import RecordError, RunFolderError, VanishedError
from nppr.measuring.blocks import FileStore
from nppr.report.evidence import EVIDENCE, Evidence, write_evidence
from nppr.report.model import ReportRecord
from nppr.report.per_input import PER_INPUT, PerInput
from nppr.search.learned_noise import LearnedNoise, save_learned
from nppr.system.bounded import read_text
from nppr.system.manifest import MANIFEST_FILE, Manifest
from nppr.system.records import find_partial_files, read_record, write_in_folder
from nppr.system.specs import EAGER

logger = logging.getLogger(__name__)

FORMAT = 1
RUN = "run.json"
LOCK = "lock"
SPECS = "specs"
"""The entry of run.json with the model and the data as they were given."""

KEPT = ("blocks", "fit", "rare")
"""Folders of files that hold the identity of their run."""

_MOST_BLANK_BYTES = 2**20
_IDENTITY = re.compile(r"([0-9a-f]{64})(?: .*)?", re.DOTALL)


class _DamagedRun(RunFolderError):
    """A run.json that holds no JSON at all, as after a loss of power."""


@dataclass(frozen=True)
class Division:
    """How a run is computed, which a resume repeats: micro-batch, form, threads, engine, gradients."""

    micro_batch: int | None = None
    form: tuple[str, ...] | None = None
    threads: int | None = None
    engine: str | None = None
    rough: bool | None = None


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one run; `identity` is a hash of what determines its numbers."""

    path: Path
    identity: str
    lock: FileLock | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: Mapping[str, object],
        division: Division | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> RunFolder:
        """Take a folder for a run with these settings, or raise `RunFolderError`.

        The folder must be new, empty or that of a run, and no other process may be at work in it until
        it is closed. With `overwrite` the files that the manifest of the run lists are removed, and no
        others.
        """
        known = json.loads(json.dumps(settings))
        lock = FileLock(Path(path) / LOCK, is_singleton=True)
        folder = cls(Path(path), _hash(json.dumps(known, sort_keys=True)), lock)
        try:
            folder._acquire(lock)
            try:
                folder._begin(known, resume=resume, overwrite=overwrite)
                if division is not None:
                    folder.note("division", asdict(division))
            except BaseException:
                folder.close()
                raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunFolderError(
                f"`out` must be a folder that can be written, got {str(path)!r}: {reason}."
            ) from error
        return folder

    def close(self) -> None:
        """Let other processes work in the folder."""
        if self.lock is not None:
            self.lock.release()

    def _acquire(self, lock: FileLock) -> None:
        """Keep other processes out of the folder; one that is not a run's is left as it is."""
        try:
            if _held(self.path) is None:
                self._require_empty()
        except _DamagedRun:
            # Blank files of a run that has hardly begun can be taken too.
            if self._strangers() and not (self.manifest.exists or self._kept()):
                raise
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise RunFolderError(
                f"`out` must be a folder that no other process works in, {str(self.path)!r} is in use."
                " Wait until that run has ended, or choose another folder."
            ) from error

    def _begin(self, settings: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Continue the run in the folder, or start one."""
        try:
            held = _held(self.path)
        except _DamagedRun as error:
            held = {}
            if resume or not overwrite:
                self._check_kept(error, resume=resume)
            logger.warning("%s is damaged: it is written again", self.path / RUN)
        else:
            if held is None:
                self._require_empty()
            elif resume or not overwrite:
                self._check_held(held, settings, resume=resume)
        if held is not None and self.manifest.is_damaged:
            logger.warning(
                "%s is damaged: it is written again, without files that cannot be recognised",
                self.manifest.path,
            )
            self.manifest.begin(self.report_path, *self._kept())
        if held is not None and not resume:
            self.manifest.clear()
        if held is None or not resume:
            self.manifest.begin()
        self.manifest.sweep(self.path / RUN)
        if not held or not resume:
            self._write_run({"format": FORMAT, "settings": settings})
            (self.path / "blocks").mkdir(exist_ok=True)

    @staticmethod
    def division(path: str | Path) -> Division:
        """Return how the run in a folder was computed."""
        try:
            held = (_held(Path(path)) or {}).get("division")
        except _DamagedRun:  # `open` decides what becomes of the run
            return Division()
        if not isinstance(held, dict):
            return Division()
        try:
            return Division(
                **{"engine": EAGER, "rough": False, **held, "form": tuple(held["form"])}
            )
        except (KeyError, TypeError) as error:
            raise RunFolderError(
                f"`run` must have a readable division in its {RUN}, got {str(held)[:80]} in"
                f" {str(path)!r}. Run it again."
            ) from error

    @staticmethod
    def is_finished(path: str | Path) -> bool:
        return (Path(path) / "report.json").exists() and (Path(path) / RUN).exists()

    @property
    def manifest(self) -> Manifest:
        return Manifest(self.path, "run")

    @property
    def report_path(self) -> Path:
        return self.path / "report.json"

    def place(self, name: str) -> Path:
        """Return the path of a file that is about to be written; the manifest lists it from now on."""
        path = self.path / name
        self.list_files(path)
        return path

    def list_files(self, *paths: Path) -> None:
        """Add files that are about to be written to the manifest of the run."""
        self.require_present()
        self.manifest.add(*paths)

    def note(self, name: str, value: object) -> None:
        """Note a value of an unfinished run, for a resume."""
        self.require_present()
        self._write_run({**(_held(self.path) or {}), name: value})

    def noted(self, name: str) -> Any:
        return (_held(self.path) or {}).get(name)

    def store(self, source: str) -> FileStore:
        """Return the store of the finished blocks of a source."""
        slug = re.sub(r"[^a-z0-9.=-]+", "_", source.lower())[:60]
        if (self.path / "blocks").is_symlink():
            raise RunFolderError(
                f"`out` must hold its own files, but {str(self.path / 'blocks')!r} is a link."
                " Remove the link."
            )
        path = self.path / "blocks" / f"{slug}-{_hash(source)[:8]}.safetensors"
        store = FileStore(path, identity=f"{self.identity} {source}")
        self.list_files(path)
        return store

    def save_learned(self, learned: Sequence[LearnedNoise]) -> None:
        save_learned(self.path / "distributions", learned, self.list_files)

    def write(
        self, report: ReportRecord, per_input: PerInput, evidence: Evidence | None = None
    ) -> None:
        """Write the inputs' results and what is shown of them, then the report."""
        names = (PER_INPUT, EVIDENCE, self.report_path.name)
        self.list_files(*(self.path / name for name in names))
        write_in_folder(self.path / PER_INPUT, per_input.to_csv())
        if evidence is not None:
            write_evidence(self.path, evidence)
        write_in_folder(self.report_path, report.to_json())

    def require_present(self) -> None:
        """Raise `VanishedError` if the folder was removed while the run is at work."""
        if not (self.path / RUN).exists():
            raise vanished(self.path)

    def _write_run(self, content: Mapping[str, object]) -> None:
        write_in_folder(self.path / RUN, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def _check_held(self, held: dict[str, Any], settings: object, *, resume: bool) -> None:
        before = held.get("settings", {})
        if before != settings:
            raise RunFolderError(
                f"`out` must be free or hold this run, {str(self.path)!r} holds one with another"
                f" {', '.join(_differences(before, settings))}. Choose another folder, or add"
                " --overwrite to replace it."
            )
        if not resume and not self.report_path.exists():
            raise RunFolderError(
                f"`out` holds an unfinished run of these settings: {str(self.path)!r}."
                " Add --resume to continue it, or --overwrite to start again."
            )

    def _check_kept(self, error: _DamagedRun, *, resume: bool) -> None:
        """Raise unless the run is to be resumed and its files are those of this run.

        Their identities tell, as run.json cannot. A report without such files may be any run's.
        """
        if not resume:
            raise RunFolderError(
                f"`out` must hold a readable {RUN}, but the one in {str(self.path)!r} is damaged."
                " Add --resume to continue its run, or --overwrite to start again."
            ) from error
        identities = set(self._kept().values())
        if identities - {self.identity} or (not identities and self.report_path.exists()):
            raise RunFolderError(
                f"`resume` must find files of this run. The {RUN} in {str(self.path)!r} is damaged,"
                f" and its other files are of another run or of none. Choose another folder, or add"
                " --overwrite instead of --resume."
            ) from error

    def _kept(self) -> dict[Path, str]:
        """The sound files of runs in this folder that hold the identity of their run."""
        found: dict[Path, str] = {}
        for path in (path for name in KEPT for path in (self.path / name).glob("*.safetensors")):
            try:
                identity = None if path.is_symlink() else read_record(path)[1].get("identity")
            except RecordError:
                continue
            if isinstance(identity, str) and (match := _IDENTITY.fullmatch(identity)):
                found[path] = match[1]
        return found

    def _require_empty(self) -> None:
        """Raise unless the folder is new, or holds at most what a run writes before its run.json."""
        if found := self.path.exists() and self._strangers():
            raise RunFolderError(
                f"`out` must be a new or empty folder or that of a run, {str(self.path)!r} holds"
                f" {found[0]} and no {RUN}. Choose another folder."
            )

    def _strangers(self) -> list[str]:
        """The names in the folder that a run does not write before its first run.json is whole."""
        begun = {
            each.name for each in find_partial_files([self.path / RUN, self.path / MANIFEST_FILE])
        }
        begun |= {MANIFEST_FILE} if self.manifest.exists else set()
        begun |= {name for name in (RUN, MANIFEST_FILE, LOCK) if _is_blank(self.path / name)}
        return sorted({path.name for path in self.path.iterdir()} - begun)


def write_specs(path: Path, specs: Mapping[str, object]) -> None:
    """Keep in a run's folder which model and data it was given, files by their absolute paths."""
    placed = {
        name: os.path.abspath(each) if isinstance(each, str) and os.path.exists(each) else each
        for name, each in specs.items()
    }
    RunFolder(path, "").note(SPECS, placed)


def read_specs(path: Path) -> dict[str, Any]:
    """The model and the data of the run that has written a distribution, or a folder of them."""
    for folder in (path, path.parent, path.parent.parent):
        if (folder / RUN).is_file():
            with contextlib.suppress(_DamagedRun):
                specs = (_held(folder) or {}).get(SPECS)
                return specs if isinstance(specs, dict) else {}
            return {}
    return {}


def vanished(folder: Path) -> VanishedError:
    """The error for a folder that was removed while its run was under way."""
    return VanishedError(
        f"`out` must stay where it is until the run has ended, {str(folder)!r} has vanished."
        " Run it again."
    )


def _held(folder: Path) -> dict[str, Any] | None:
    """The content of run.json, or None where there is none; one that is not ours is an error."""
    path = folder / RUN
    advice = "Choose another folder, or delete this one yourself."
    try:
        if path.is_symlink():
            raise ValueError("it is a link")
        held = json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        damaged = path.is_file() and not path.is_symlink() and not isinstance(error, OSError)
        raise (_DamagedRun if damaged else RunFolderError)(
            f"`out` must hold a readable {RUN}, got {path}: {error}. {advice}"
        ) from error
    if (
        not isinstance(held, dict)
        or held.get("format") != FORMAT
        or not isinstance(held.get("settings"), dict)
    ):
        raise RunFolderError(
            f"`out` must hold a run of this version of nppr, {path} belongs to something else."
            f" {advice}"
        )
    return held


def _is_blank(path: Path) -> bool:
    """Whether this is a file without content: empty, or zeros, which a loss of power can leave."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _MOST_BLANK_BYTES:
        return False
    return not path.read_bytes().strip(b"\0")


def _differences(before: Any, now: Any) -> list[str]:
    """Names of the entries in which two trees of settings differ, the innermost ones."""
    names: set[str] = set()
    for name in {*before, *now}:
        old, new = before.get(name), now.get(name)
        inner = isinstance(old, dict) and isinstance(new, dict)
        if old != new:
            names.update(_differences(old, new) if inner else [name])
    return sorted(names)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
