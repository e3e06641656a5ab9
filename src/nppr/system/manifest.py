"""The list of files in a folder that nppr may remove.

`manifest.json` lists the files of a run or a study by their paths within the folder. A file is
listed before it is written, so a crash leaves at worst an entry without a file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from nppr.errors import RunFolderError, WriteError
from nppr.system.bounded import read_text
from nppr.system.records import find_partial_files, write_in_folder

MANIFEST_FILE = "manifest.json"
MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The list of files that a `kind` of work ("run", "study") has written to a folder."""

    folder: Path
    kind: str

    @property
    def path(self) -> Path:
        return self.folder / MANIFEST_FILE

    @property
    def exists(self) -> bool:
        return self._read() is not None

    @property
    def is_damaged(self) -> bool:
        """Whether the manifest is not valid JSON, as after a loss of power."""
        try:
            if not stat.S_ISREG(self.path.lstat().st_mode):
                return False
            json.loads(self.path.read_text(encoding="utf-8"))
        except OSError:
            return False
        except (ValueError, RecursionError):
            return True
        return False

    def begin(self, *paths: Path) -> None:
        """Start a new list with files that are about to be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(
                f"`out` must be a folder that can be written, got {str(self.folder)!r}:"
                f" {error.strerror or error}."
            ) from error
        self._write(self._inside(paths))

    def add(self, *paths: Path) -> None:
        """List files that are about to be written.

        Files outside the folder, also those behind a link, are not listed. A damaged list is
        replaced.
        """
        known = self._read()
        if known is None and os.path.lexists(self.path) and not self.is_damaged:
            raise self._unreadable()
        names = self._inside(paths)
        if known is None or not names <= known:
            self._write(names | (known or set()))

    def require_ours(self) -> None:
        """Raise `RunFolderError` unless the folder is new, empty, or has a manifest of this kind.

        Partial files of an interrupted first write of the manifest do not count.
        """
        held = set(self.folder.iterdir()) if self.folder.exists() else set()
        if held - set(find_partial_files([self.path])) and not self.exists:
            raise RunFolderError(
                f"`out` must be a new or empty folder or that of a {self.kind}, {str(self.folder)!r}"
                " holds other files. Choose another folder."
            )

    def replace(self, *paths: Path) -> None:
        """Remove the files of the earlier work, and list those about to be written."""
        if self.exists:
            self.clear()
        self.begin(*paths)
        self.sweep()

    def clear(self) -> None:
        """Remove the listed files and the partial files of their interrupted writes."""
        known = self._read()
        if known is None:
            raise self._unreadable()
        paths = [self.folder / name for name in sorted(known)]
        self._unlink([*paths, *find_partial_files(paths)])

    def sweep(self, *more: Path) -> None:
        """Remove partial files from interrupted writes of listed files, the manifest and `more`."""
        files = [self.folder / name for name in self._read() or ()]
        self._unlink(find_partial_files([*files, self.path, *more]))

    def _unlink(self, paths: Iterable[Path]) -> None:
        """Remove files, never through a link."""
        for path in paths:
            between = [self.folder.joinpath(part) for part in path.relative_to(self.folder).parents]
            if any(above.is_symlink() for above in between if above != self.folder):
                continue
            try:
                mode = path.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                path.unlink()  # for a link, this removes the link itself

    def _unreadable(self) -> RunFolderError:
        """Return the error for a folder whose manifest does not list what may be removed."""
        return RunFolderError(
            f"`out` must hold a {self.path.name} that lists the files of its {self.kind},"
            f" {str(self.folder)!r} holds none that nppr can use. Choose another folder, or delete"
            " this one yourself."
        )

    def _inside(self, paths: Iterable[Path]) -> set[str]:
        """Return the paths within the folder of these files; links above a file are followed."""
        folder = self.folder.resolve()
        places = [path.parent.resolve() / path.name for path in paths]
        names = {each.relative_to(folder).as_posix() for each in places if folder in each.parents}
        return {name for name in names if _is_inside(name)}

    def _read(self) -> set[str] | None:
        """Return the listed names, or None if the manifest is missing, foreign or invalid."""
        try:
            if self.path.is_symlink():
                return None
            content = json.loads(read_text(self.path))
            if content["nppr"] != self.kind or content["format"] != MANIFEST_FORMAT:
                return None
            names = content["files"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(names, list) or not all(_is_inside(name) for name in names):
            return None
        return set(names)

    def _write(self, names: set[str]) -> None:
        content = {"nppr": self.kind, "format": MANIFEST_FORMAT, "files": sorted(names)}
        write_in_folder(self.path, json.dumps(content, indent=2) + "\n")


def _is_inside(name: object) -> bool:
    """Whether this path stays inside the folder it is joined to, on any system.

    >>> [_is_inside(name) for name in ("blocks/a", "../a", "/a", "c:a", "")]
    [True, False, False, False, False]
    """
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    windows = PureWindowsPath(name)
    return not windows.anchor and ".." not in windows.parts and bool(windows.parts)
