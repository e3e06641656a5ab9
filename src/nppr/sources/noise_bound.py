"""The bound that states "at least": all noise of a set around a reference noise (`nppr.noise_sets`).

With draws of its own for every input it holds for noise that may see the input. With `patterns`, which
all inputs share, it holds for noise that does not, and is much sharper.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nppr.budget import Budget
from nppr.errors import SpecError, unknown
from nppr.noise.family import Dependency
from nppr.noise_sets import DEFAULT_SIZES, RATIO, NoiseSet, parse_sets
from nppr.random_draws import DrawBlock
from nppr.sources.base import Source, references
from nppr.tally import Estimate, Evaluate, FrozenModel, Metric, Tally

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Bound(Source, kind="bound"):
    """The draws of a reference noise, read as bounds for the sets of a kind.

    `ratio` lists values of c and `size` those of d or e, with `+` between them. The reference is fixed
    noise by its name, or the noise that is `given`, under the name `reference`.
    """

    metric = Metric.BOUND

    budget: Budget
    reference: str = "uniform"
    set: str = RATIO
    ratio: str = DEFAULT_SIZES[RATIO]
    size: str = ""
    patterns: int = 0
    given: Source | None = field(default=None, repr=False, compare=False)
    noise: Source = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {noise.kind: noise for noise in references(self.budget)}
        if self.given is None and self.reference not in known:
            raise unknown("reference", self.reference, known)
        object.__setattr__(self, "noise", self.given or known[self.reference])
        ratios = "" if self.set != RATIO and self.ratio == DEFAULT_SIZES[RATIO] else self.ratio
        object.__setattr__(self, "noise_sets", parse_sets(self.set, self.size, ratios))
        if self.patterns < 0:
            raise SpecError(f"`patterns` must be a whole number >= 0, got {self.patterns}.")
        if self.patterns:
            if not Dependency.INDEPENDENT.contains(self.noise.dependency or self.noise.sees):
                raise SpecError(
                    "`patterns` must be 0 where the reference noise sees the input, got"
                    f" {self.patterns} with {self.reference!r}."
                )
            object.__setattr__(self, "fixed_draws", self.patterns)
            object.__setattr__(self, "keeps_outcomes", True)

    def at(self, budget: Budget) -> Bound:
        return replace(self, budget=budget, given=self.given and self.given.at(budget))

    @property
    def moved_by_splitting(self) -> Source | None:
        return None if self.patterns else self.noise

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The draws of the reference, `(B, S, C, H, W)`; patterns are the same for all inputs."""
        if not self.patterns:
            return self.noise.perturb(model, x, y, draws)
        shared = replace(draws, split=f"{draws.split}/shared", indices=(0,))
        found = self.noise.perturb(model, x[:1], y[:1], shared)
        return found.expand(len(x), *found.shape[1:])

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """Two bounds and an estimate for every set; the bounds of all sets hold together."""
        return read_bounds(tally, self.noise_sets, self.reference, confidence, seed)


def read_bounds(
    tally: Tally[Evaluate],
    sets: tuple[NoiseSet, ...],
    reference: str,
    confidence: float,
    seed: int,
) -> list[Estimate]:
    """The tally of a reference noise read as bounds that hold together."""
    from nppr.statistics.at_least import at_least, together  # not before PyTorch is needed
    from nppr.statistics.shared_patterns import at_least_shared

    read = at_least if tally.outcomes is None else at_least_shared
    rows = together(read, tally, sets, confidence, seed)
    return [replace(row, reference=reference) for row in rows]
