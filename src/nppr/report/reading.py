"""Reading a JSON file that nppr wrote: what is wrong with it is one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nppr.errors import RunFolderError

__all__ = ["read_record"]

R = TypeVar("R", bound=BaseModel)


def read_record(path: str | Path, model: type[R], version: int, name: str, file: str) -> R:
    """The record in a file, of this schema version; `name` is what errors call it."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["schema_version"]
        if found != version:
            raise RunFolderError(
                f"`{name}` must have schema version {version}, got {found!r} in {path}."
                " Read it with the version of nppr that wrote it."
            )
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunFolderError(
            f"`{name}` field {where!r} in {path} is wrong: {first['msg']}."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"`{name}` must be a {file}, cannot read {path}: {error}") from error
