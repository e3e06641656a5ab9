"""What determines the numbers of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from nppr.errors import SpecError
from nppr.rare import FEWEST, REPLICATES, calls_for
from nppr.statistics.intervals import check_confidence

__all__ = ["DRAWS", "RARE_CALLS_PER_INPUT", "RARE_FLOOR", "Facts", "Settings"]

DRAWS = 100
"""Draws per input unless something else is asked for."""

RARE_FLOOR = 1e-6
"""Failures that are rarer are not looked for: the input then counts with about this probability."""

RARE_CALLS_PER_INPUT = REPLICATES * (calls_for(FEWEST, math.log(RARE_FLOOR)) + FEWEST)
"""Calls that reach the floor with the fewest particles, and one level to spare."""

LEAST = {
    "draws": 1,
    "inputs": 1,
    "fit_inputs": 1,
    "select_inputs": 1,
    "seed": 0,
    "rare_calls": RARE_CALLS_PER_INPUT,
}


@dataclass(frozen=True)
class Settings:
    """What determines the numbers of a run, beside classifier, data and sources.

    With `precision`, `draws` and `inputs` are the fewest and the most. `rare_calls` are those that
    splitting may take in all; `radii` are measured too.
    """

    draws: int = DRAWS
    inputs: int | None = None
    fit_inputs: int | None = None
    select_inputs: int | None = None
    confidence: float = 0.95
    seed: int = 0
    quantise: bool = False
    only_merged: bool = False
    precision: float | None = None
    rare_calls: int | None = None
    radii: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        for name, smallest in LEAST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= smallest):
                argument = name.replace("_", "-")
                raise SpecError(
                    f"`{argument}` must be a whole number >= {smallest}, got {value!r}."
                )
        if self.radii and self.only_merged:
            raise SpecError(
                "`radii` must come without only-merged, which reports one row for all attacks."
            )
        if self.precision is not None and not 0 < self.precision < 0.5:
            raise SpecError(
                f"`precision` must lie in (0, 0.5), got {self.precision}: half the width of an"
                " interval. Example: 0.01"
            )

    def as_dict(self) -> dict[str, Any]:
        """All but the seed, which stands by itself in a report."""
        found = {name: value for name, value in vars(self).items() if name != "seed"}
        return {**found, "radii": list(self.radii)}


@dataclass(frozen=True)
class Facts:
    """The parts of a report that are known before anything is measured."""

    classifier: dict[str, Any]
    data: dict[str, Any]
    budget: dict[str, Any]
    settings: dict[str, Any]
    seed: int

    def identity(self) -> dict[str, Any]:
        """What two runs must share to be the same run."""
        return {**vars(self), "nppr_version": version("nppr")}
