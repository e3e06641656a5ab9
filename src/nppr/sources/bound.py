"""The bound that says "at least": noise of bounded density ratio to a reference noise.

Over all noise, input-dependent or not, whose density is at most c times the reference's, an input with
failure probability p under the reference is right with probability at least `max(0, 1 - c p)`, and
some such noise reaches it: it puts all the weight it may on the failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from nppr.budget import Budget
from nppr.draws import DrawBlock
from nppr.errors import SpecError, unknown
from nppr.sources.naming import spelled
from nppr.sources.noise import Gaussian, Laplace, Noise, Uniform
from nppr.types import FrozenModel, Metric

__all__ = ["REFERENCES", "Bound"]

REFERENCES: dict[str, Callable[[Budget], Noise]] = {
    "gaussian": Gaussian,
    "uniform": Uniform,
    "laplace": Laplace,
}
RATIOS = "1+2+5+10"
LARGEST = 1e9


@dataclass(frozen=True)
class Bound:
    """The draws of a reference noise, read as a bound; `ratio` lists values of c with `+`."""

    budget: Budget
    reference: str = "uniform"
    ratio: str = RATIOS

    def __post_init__(self) -> None:
        if self.reference not in REFERENCES:
            raise unknown("reference", self.reference, REFERENCES)
        _ = self.ratios

    @property
    def ratios(self) -> tuple[float, ...]:
        """The values of c."""
        try:
            values = tuple(float(part) for part in str(self.ratio).split("+"))
        except ValueError:
            values = ()
        if not values or not all(1 <= value <= LARGEST for value in values):
            raise SpecError(
                f"`density-ratio` must hold numbers from 1 to {LARGEST:g}, got {self.ratio!r}."
                " Example: 1,2,5,10 (in --sources: bound:ratio=1+2+5+10)"
            )
        if len(set(values)) < len(values):
            raise SpecError(f"`density-ratio` must name every ratio once, got {self.ratio!r}.")
        return values

    @property
    def name(self) -> str:
        return spelled(self)

    @property
    def metric(self) -> Metric:
        return Metric.BOUND

    @property
    def fixed_draws(self) -> int | None:
        return None

    @property
    def cost(self) -> float:
        return 1.0

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The draws of the reference, `(B, S, C, H, W)`."""
        return REFERENCES[self.reference](self.budget).perturb(model, x, y, draws)
