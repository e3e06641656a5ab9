"""The bound that states "at least": noise of bounded density ratio to a reference noise.

Over all noise, input-dependent or not, whose density is at most c times the reference's, an input with
failure probability p under the reference is classified correctly with probability at least
`max(0, 1 - c p)`, and some such noise attains it: it puts all the weight it may on the failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nppr.budget import Budget
from nppr.errors import unknown
from nppr.random_draws import DrawBlock
from nppr.sources.base import Source, parse_numbers, references
from nppr.tally import Estimate, Evaluate, FrozenModel, Metric, Tally

if TYPE_CHECKING:
    from torch import Tensor


RATIOS = "1+2+5+10"
LARGEST = 1e9


@dataclass(frozen=True)
class Bound(Source, kind="bound"):
    """The draws of a reference noise, read as a bound; `ratio` lists values of c with `+`."""

    metric = Metric.BOUND

    budget: Budget
    reference: str = "uniform"
    ratio: str = RATIOS
    noise: Source = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {noise.kind: noise for noise in references(self.budget)}
        if self.reference not in known:
            raise unknown("reference", self.reference, known)
        example = "1,2,5,10 (in --sources: bound:ratio=1+2+5+10)"
        ratios = parse_numbers(
            "`density-ratio`", self.ratio, each="ratio", most=LARGEST, example=example
        )
        object.__setattr__(self, "density_ratios", ratios)
        object.__setattr__(self, "noise", known[self.reference])

    @property
    def moved_by_splitting(self) -> Source:
        return self.noise

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The draws of the reference, `(B, S, C, H, W)`."""
        return self.noise.perturb(model, x, y, draws)

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """Two bounds and an estimate for every c; the bounds of all c hold together."""
        from nppr.statistics.density_ratio import at_least_together  # not before PyTorch is needed

        found = at_least_together(tally, self.density_ratios, confidence, seed)
        return [
            replace(row, density_ratio=c, reference=self.reference)
            for c, rows in found.items()
            for row in rows
        ]
