"""The bound that states "at least": all noise of a set around a reference noise.

If every input has separate draws, the bound covers noise that may see the input. With `patterns`, which
all inputs share, it covers noise that does not see the input, and is usually much sharper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Estimate, Evaluate, FrozenModel, Metric, Tally
from nppr.errors import SpecError, require_at_most, unknown
from nppr.sources.base import Source, references
from nppr.statistics.noise_sets import DEFAULT_SIZES, RATIO, growing_sets, parse_sets

if TYPE_CHECKING:
    from torch import Tensor


MOST_PATTERNS = 10**6


@dataclass(frozen=True)
class Bound(Source, kind="bound"):
    """The draws of a reference noise, read as bounds for the sets of a kind.

    `ratio` lists values of c and `size` those of d or e, with `+` between them. The reference is fixed
    noise by its name, or the noise that is `given`, under the name `reference`. `beside` is the
    other bound that it shares the error with (`share_error`).
    """

    metric = Metric.BOUND

    budget: Budget
    reference: str = "uniform"
    set: str = RATIO
    ratio: str = DEFAULT_SIZES[RATIO]
    size: str = ""
    patterns: int = 0
    least: float = 0.0
    given: Source | None = field(default=None, repr=False, compare=False)
    beside: Source | None = field(default=None, repr=False, compare=False)
    noise: Source = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {noise.kind: noise for noise in references(self.budget)}
        if self.given is None and self.reference not in known:
            raise unknown("reference", self.reference, known)
        object.__setattr__(self, "noise", self.given or known[self.reference])
        if self.noise.fixed_draws is not None:
            raise SpecError(f"`reference` must be noise that is drawn, got {self.noise.name!r}.")
        ratios = None if self.ratio == DEFAULT_SIZES[RATIO] else self.ratio
        object.__setattr__(self, "noise_sets", parse_sets(self.set, self.size or None, ratios))
        if not 0 <= self.least < 1:
            raise SpecError(f"`at-least` must lie in [0, 1), got {self.least:g}. Example: 0.95")
        if self.patterns < 0:
            raise SpecError(f"`patterns` must be a whole number >= 0, got {self.patterns}.")
        require_at_most("patterns", self.patterns, MOST_PATTERNS)
        if self.patterns:
            if not self.sees_nothing:
                raise SpecError(
                    "`patterns` must be 0 where the reference noise sees the input, got"
                    f" {self.patterns} with {self.reference!r}."
                )
            object.__setattr__(self, "fixed_draws", self.patterns)
            object.__setattr__(self, "keeps_outcomes", True)
            object.__setattr__(self, "superset", self.beside.name if self.beside else "")

    @property
    def sees_nothing(self) -> bool:
        """Whether the reference noise is the same law for all inputs, so that they can share it."""
        return not (self.noise.dependency or self.noise.sees).knows

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
        """Two bounds and an estimate for every set; the bounds of all sets hold together.

        With `least`, a row for each claim: the largest set for which at least that is shown.
        """
        from nppr.statistics.lower_bounds import (  # after PyTorch
            PerInputDraws,
            estimate_bounds_jointly,
            find_largest_sets,
        )
        from nppr.statistics.shared_patterns import SharedPatterns

        draws = SharedPatterns(tally, seed) if self.patterns else PerInputDraws(tally, seed)
        readings = 2 if self.beside else 1
        if self.least:
            ratios = dict.fromkeys(noise.facts["density_ratio"] for noise in self.noise_sets)
            cs = [None] if self.set == RATIO else list(ratios)
            families = [growing_sets(self.set, c) for c in cs]
            rows = find_largest_sets(draws, families, self.least, confidence, readings=readings)
        else:
            rows = estimate_bounds_jointly(draws, self.noise_sets, confidence, readings=readings)
        return [replace(row, reference=self.reference) for row in rows]


def share_error(sources: Sequence[Source]) -> list[Source]:
    """The sources, of which two bounds of the same sets share the error equally.

    One holds for noise that may see the input, the other for noise that does not. The second set of
    noise lies in the first, so the larger of the two bounds holds for it, and with the error shared
    both hold together.
    """
    bounds = {each.name: each for each in sources if isinstance(each, Bound)}
    beside: dict[str, Bound] = {}
    for blind in (each for each in bounds.values() if each.patterns):
        own = bounds.get(replace(blind, patterns=0).name)
        if own is not None:
            beside |= {own.name: blind, blind.name: own}
    return [
        replace(each, beside=beside.get(each.name)) if isinstance(each, Bound) else each
        for each in sources
    ]
