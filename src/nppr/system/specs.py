"""Words and limits that the command line and the library share, and the files that state settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from nppr.errors import SpecError
from nppr.system.bounded import TOML_LIMIT, OversizeError, read_text

MOST_CLASSES = 100_000
"""A network or a data set with more is a mistake, or made to fill the memory."""

RANDOM_WEIGHTS = "random"
"""In place of a weights file: an untrained network."""

EAGER, BFLOAT16 = ENGINES = ("eager", "bfloat16")
"""What computes forward passes that need no gradients."""


def read_toml(argument: str, path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file that is given for this argument."""
    try:
        return tomllib.loads(read_text(path, TOML_LIMIT))
    except OSError as error:
        reason = error.strerror or str(error)
    except OversizeError as error:
        reason = str(error).rstrip(".")
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
    raise SpecError(
        f"`{argument}` must be a TOML file that can be read, got {str(path)!r}: {reason}."
        f" Example: {argument}.toml"
    )
