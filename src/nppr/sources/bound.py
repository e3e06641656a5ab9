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
from nppr.errors import unknown
from nppr.sources.base import Source, listed
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
class Bound(Source):
    """The draws of a reference noise, read as a bound; `ratio` lists values of c with `+`."""

    metric = Metric.BOUND

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
        example = "1,2,5,10 (in --sources: bound:ratio=1+2+5+10)"
        return listed("`density-ratio`", self.ratio, each="ratio", most=LARGEST, example=example)

    @property
    def noise(self) -> Noise:
        """The reference noise."""
        return REFERENCES[self.reference](self.budget)

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The draws of the reference, `(B, S, C, H, W)`."""
        return self.noise.perturb(model, x, y, draws)
