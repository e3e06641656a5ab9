"""What determines the numbers of a run, beside classifier, data, budget and sources."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nppr.budget import Budget, parse_radius
from nppr.errors import BudgetError, SpecError, require_at_most, unknown
from nppr.random_draws import DRAWS
from nppr.specs import EAGER, ENGINES

PRECISION_DRAWS = 16
"""Draws per input that a run with a wanted precision begins with: one block."""

MOST = {"draws": 10**7, "seed": 2**63 - 1, "rare_calls": 10**10}
"""What a run comes to the end of, and what generators take."""

FINEST_PRECISION = 1e-5
"""Half-widths below this would take more than 10 billion inputs."""

RARE_FLOOR = 1e-6
"""Rarer failures are not searched for: the input then counts with about this probability."""

RARE_CALLS_PER_INPUT = 5_500
"""Calls that reach the floor with the fewest particles, and one level to spare."""


@dataclass(frozen=True)
class RunSettings:
    """What determines the numbers of a run.

    With `precision`, `draws` and `inputs` are the fewest draws and the most inputs. `rare_calls` are
    those that splitting may take in all; the sources are measured at the other `radii` too. `engine` is
    exact (`eager`), or `bfloat16`: 16-bit floats that screen and lead fits, with an audit.
    """

    draws: int | None = None
    inputs: int | None = None
    fit_inputs: int | None = None
    select_inputs: int | None = None
    confidence: float = 0.95
    seed: int = 0
    quantise: bool = False
    only_merged: bool = False
    precision: float | None = None
    rare_calls: int | None = None
    radii: tuple[str | float, ...] = ()
    engine: str = EAGER

    def __post_init__(self) -> None:
        if not (isinstance(self.confidence, float) and 0 < self.confidence < 1):
            raise SpecError(
                f"`confidence` must lie in (0, 1), got {self.confidence!r}. Example: 0.95"
            )
        least = {"seed": 0, "rare_calls": RARE_CALLS_PER_INPUT}
        for name in ("draws", "inputs", "fit_inputs", "select_inputs", "seed", "rare_calls"):
            value, smallest = getattr(self, name), least.get(name, 1)
            if value is not None and not (isinstance(value, int) and value >= smallest):
                argument = name.replace("_", "-")
                raise SpecError(
                    f"`{argument}` must be a whole number >= {smallest}, got {value!r}."
                )
            require_at_most(name.replace("_", "-"), value, MOST.get(name, math.inf))
        if self.radii and self.only_merged:
            raise SpecError(
                "`radii` must be given without `only-merged`, which reports one row for all attacks."
            )
        if self.precision is not None and not (FINEST_PRECISION <= self.precision < 0.5):
            raise SpecError(
                f"`precision` must lie in [{FINEST_PRECISION:g}, 0.5), got {self.precision}:"
                " how far intervals may reach from their value. Example: 0.01"
            )
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if self.engine != EAGER and (self.precision is not None or self.rare_calls is not None):
            other = "precision" if self.precision is not None else "rare"
            raise SpecError(
                f"`engine` {self.engine} must be given without `{other}`, which needs exact counts."
                " Leave out --engine."
            )
        default = DRAWS if self.precision is None else PRECISION_DRAWS
        object.__setattr__(self, "draws", default if self.draws is None else self.draws)
        object.__setattr__(self, "radii", _sorted_radii(self.radii))


def default_draws(inputs: int) -> int:
    """Draws per input: inputs differ more than draws, so many inputs need fewer draws of each.

    >>> default_draws(500), default_draws(2_000), default_draws(10_000)
    (100, 50, 16)
    """
    return min(DRAWS, max(PRECISION_DRAWS, -(-1_000 * DRAWS // max(1, inputs))))


def _sorted_radii(radii: tuple[str | float, ...]) -> tuple[str, ...]:
    """As they were written, smallest first."""
    try:
        known = {parse_radius(radius): str(radius) for radius in radii}
    except BudgetError as error:
        raise BudgetError(str(error).replace("`radius`", "`radii`")) from error
    if len(known) < len(radii):
        raise SpecError(f"`radii` must be different, got {', '.join(map(str, radii))}.")
    return tuple(known[radius] for radius in sorted(known))


def require_budget(budget: Budget | None, data: str, argument: str = "radius") -> Budget:
    """The budget, which must be stated except for the digits demo; `data` is the name of the data."""
    if isinstance(budget, Budget) and budget.norm.name == "linf" and budget.radius > 1:
        raise BudgetError(
            f"`{argument}` must be at most 1 for images in [0, 1], got {budget.radius_text}."
            " Example: 8/255"
        )
    if isinstance(budget, Budget):
        return budget
    if budget is not None:
        raise BudgetError(f"`budget` must be a Budget, got {budget!r}. Example: Budget.linf(0.1)")
    if data == "digits":
        return Budget.linf(0.1)
    raise BudgetError(
        "`budget` must be stated for your data: the largest perturbation you admit."
        " Example: --norm linf --eps 8/255, or --transform rotate=15"
    )
