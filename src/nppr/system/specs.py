"""Words and limits shared by the command line and the library, and a reader of TOML settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from nppr.errors import SpecError
from nppr.system.bounded import TOML_LIMIT, OversizeError, read_text

MOST_CLASSES = 100_000
"""More classes than this are a mistake, or an attempt to fill the memory."""

MOST_WORKERS = 1024
"""More processes than this are a mistake: each of them loads the model and the data."""

RANDOM_WEIGHTS = "random"
"""Value of `weights` for an untrained network."""

EAGER, BFLOAT16 = ENGINES = ("eager", "bfloat16")
"""Engines that compute forward passes without gradients."""


def read_toml(argument: str, path: str | Path) -> dict[str, Any]:
    """Return the content of the TOML file given for this argument."""
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
