"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from nppr.errors import RunFolderError


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all; an interrupted write leaves the file that was there."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFolderError(
            f"`out` must be a place that can be written, got {str(path)!r}: {reason}."
        ) from error
