"""A number of the report: what it is about, its value, and every interval that was computed for it.

`Number.subject` states what was measured: clean inputs, noise, learned noise, an attack, a bound, ...
`Number.intervals` holds one entry per method and claim. The first is the one that a table prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from nppr.core.tally import Claim, Direction, Metric
from nppr.noise.admissible_set import NPPR, AdmissibleSet
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STRUCTURES
from nppr.search.search_record import Record
from nppr.statistics.estimates import APPROXIMATE, SEQUENCE
from nppr.statistics.noise_sets import NoiseSet, make_set

CLEAN = "clean"
"""The source of the clean accuracy."""

MERGED = "merged"
"""The source of AR over everything in the budget."""

SPLITTING = "draws + splitting"
"""The method of numbers that join plain draws and splitting."""

GUARANTEED = (SEQUENCE, "betting", "clopper-pearson", "empirical-bernstein", "exact")
"""Methods whose intervals hold at any sample size, the one to print first."""

Confidence = Annotated[float, Field(gt=0, lt=1)]


LARGEST_SHARE = 1e9
"""Shares and ratios of shares stay far below; larger numbers come from edited files."""


def _require_share(value: float | None) -> float | None:
    """Return a share, or a ratio of shares, that can be printed."""
    if value is not None and not abs(value) <= LARGEST_SHARE:
        raise ValueError(f"expected a share, got {value:g}")
    return value


Share = Annotated[float, AfterValidator(_require_share)]


class StatedInterval(Record):
    """One interval of a number: its ends, how it was computed, and what it applies to."""

    low: Share
    high: Share
    method: str
    claim: Claim
    flags: tuple[str, ...] = ()
    lowest_of: int | None = None
    """Number of sources, if the interval accounts for choosing the lowest of several."""

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def is_untested(self) -> bool:
        """Whether it is approximate and outside the regime in which it was tested."""
        return APPROXIMATE in self.flags

    @property
    def is_guaranteed(self) -> bool:
        """Whether it holds at any sample size."""
        return self.method in GUARANTEED


def _require_structure(name: str) -> str:
    """Return the name of a structure that is declared, for a file."""
    if name not in STRUCTURES:
        raise ValueError(f"expected one of {', '.join(STRUCTURES)}")
    return name


class _Subject(Record):
    """The subject of a number; `source` is written as on a command line: `uniform:scale=0.5`."""

    source: str
    radius: float | None = None
    """Radius of the budget; None for sources without one."""

    @property
    def noise(self) -> str:
        """The name of the noise alone, which flags and records of searches use."""
        return self.source

    @property
    def name(self) -> str:
        """The name for readers, unique within a metric."""
        return self.noise


class CleanSubject(_Subject):
    """The inputs as they are."""

    kind: Literal["clean"] = "clean"
    source: str = CLEAN


class NoiseSubject(_Subject):
    """Noise that is drawn and was not searched for."""

    kind: Literal["noise"] = "noise"
    fixed: bool = False
    """Whether the noise sees neither the input nor the classifier."""


class LearnedSubject(_Subject):
    """The worst noise found in an admissible set.

    >>> LearnedSubject(rung=Dependency.LABEL, floor=0.5).name
    'nppr:label:floor=0.5'
    """

    kind: Literal["learned"] = "learned"
    source: str = NPPR
    rung: Dependency | None = None
    """The rung of the ladder; None if the search failed before it was known."""
    structure: Annotated[str, AfterValidator(_require_structure)] = ANY
    """The material of the noise."""
    floor: float = 0.0
    """Least randomness rho."""
    fit_seed: int | None = None
    """Number of a repeated search; None for the search that was chosen."""
    with_references: bool = False
    """Whether the set includes the reference noises: the lowest on the select split was measured."""

    @property
    def admissible(self) -> AdmissibleSet | None:
        """The admissible set; None if the search failed before it was known."""
        if self.rung is None:
            return None
        return AdmissibleSet(self.rung, self.structure, self.floor)

    @property
    def noise(self) -> str:
        if self.admissible is not None:
            return self.admissible.name_noise(self.fit_seed)
        return self.source + (f":floor={self.floor:g}" if self.floor else "")

    @property
    def name(self) -> str:
        return self.noise + (" (lowest of the set)" if self.with_references else "")

    @property
    def place(self) -> tuple[float, int, int]:
        """The place in tables: by floor, then by structure, then down the ladder."""
        return self.admissible.place if self.admissible else (self.floor, 0, 0)

    @property
    def width(self) -> tuple[float, ...]:
        """Sort key: the widest admissible set comes first.

        The widest set has the smallest floor, then the least restricted structure, then the lowest
        rung, and includes the reference noises. `per-input`, which is searched for on the evaluated
        inputs, and repeated searches come last.
        """
        last = self.fit_seed is not None, self.rung is not None and not self.rung.is_fitted
        floor, structure, depth = self.place
        return (*last, floor, -structure, -depth, not self.with_references)

    def contains(self, other: LearnedSubject) -> bool:
        """Whether noise of the other set is also noise of this set."""
        if other.floor < self.floor:
            return False
        mine, its = self.admissible, other.admissible
        return mine is None or its is None or mine.contains(its)


class AttackSubject(_Subject):
    """One attack."""

    kind: Literal["attack"] = "attack"


class MergedSubject(_Subject):
    """Everything that stays in the budget, together."""

    kind: Literal["merged"] = "merged"
    source: str = MERGED


class BoundSubject(_Subject):
    """All noise of a set around a reference noise.

    The set has a kind, such as `ratio` or `tv`, and sizes: the density ratio c of `ratio` and
    `contaminated`, and d or e of the others. A bound that failed has no set.
    """

    kind: Literal["bound"] = "bound"
    reference: str | None = None
    noise_set: str | None = None
    density_ratio: float | None = None
    size: float | None = None
    sees_input: bool | None = None
    """Whether the noise of the set may see the input."""
    asked: bool = True
    """Whether this bound was asked for; every fixed noise is read as bounds as well."""

    @property
    def bounded(self) -> NoiseSet | None:
        if self.noise_set is None:
            return None
        return make_set(self.noise_set, self.size, self.density_ratio)

    @property
    def noise(self) -> str:
        return self.source if self.bounded is None else f"{self.source}:{self.bounded.label}"


class CorruptionSubject(_Subject):
    """One corruption, which has no budget."""

    kind: Literal["corruption"] = "corruption"


class StressSubject(_Subject):
    """The loss under Uniform noise, as the mean of order q."""

    kind: Literal["stress"] = "stress"
    order: float | None = None

    @property
    def noise(self) -> str:
        return self.source if self.order is None else f"{self.source}:q={self.order:.15g}"


Subject = Annotated[
    CleanSubject
    | NoiseSubject
    | LearnedSubject
    | AttackSubject
    | MergedSubject
    | BoundSubject
    | CorruptionSubject
    | StressSubject,
    Field(discriminator="kind"),
]


class Number(Record):
    """One number of one subject, with everything needed to quote it.

    `tally` names the lines of `per_input.csv` that it was computed from. A source that failed has one
    number without a value, and `error` states why.
    """

    subject: Subject
    metric: Metric
    value: Share | None = None
    direction: Direction | None = None
    confidence: Confidence
    intervals: tuple[StatedInterval, ...] = ()
    gamma: float | None = None
    """Of prob_acc."""
    inputs: int = 0
    draws: int = 0
    calls: int = 0
    tally: str | None = None
    flags: tuple[str, ...] = ()
    error: str | None = None

    @property
    def source(self) -> str:
        return self.subject.source

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def radius(self) -> float | None:
        return self.subject.radius

    @property
    def learned(self) -> LearnedSubject | None:
        """The admissible set, if the number is of learned noise."""
        return self.subject if isinstance(self.subject, LearnedSubject) else None

    @property
    def bound(self) -> BoundSubject | None:
        """The set of noise, if the number is of all noise of a set."""
        return self.subject if isinstance(self.subject, BoundSubject) else None

    @property
    def is_fixed(self) -> bool:
        """Whether it is of noise that sees neither the input nor the classifier."""
        return isinstance(self.subject, NoiseSubject) and self.subject.fixed

    @property
    def is_repeated(self) -> bool:
        """Whether it is of a search that was repeated with another seed."""
        return self.learned is not None and self.learned.fit_seed is not None

    @property
    def with_references(self) -> bool:
        """Whether it is of learned noise and the reference noises together."""
        return self.learned is not None and self.learned.with_references

    @property
    def is_upper_bound(self) -> bool:
        """Whether the truth can only be lower: a search may have missed something worse."""
        return self.direction is Direction.UPPER_BOUND

    @property
    def is_lower_bound(self) -> bool:
        """Whether the truth can only be higher."""
        return self.direction is Direction.LOWER_BOUND

    @property
    def is_split(self) -> bool:
        """Whether plain draws and splitting were joined."""
        return any(each.method == SPLITTING for each in self.intervals)

    @property
    def own(self) -> StatedInterval | None:
        """The interval that a table prints beside the value."""
        return next(iter(self.intervals), None)

    @property
    def guaranteed(self) -> StatedInterval | None:
        """The interval for the same claim that holds at any sample size; None for lower bounds."""
        if self.own is None or self.is_lower_bound:
            return None
        same = {
            each.method: each
            for each in self.intervals
            if each.claim is self.own.claim and each.lowest_of is None
        }
        return next((same[method] for method in GUARANTEED if method in same), None)

    @property
    def shown(self) -> StatedInterval | None:
        """The interval to print: the guaranteed one if the own one is outside its tested regime."""
        untested = self.own is not None and self.own.is_untested
        return (self.guaranteed if untested else None) or self.own

    @property
    def quoted(self) -> StatedInterval | None:
        """The interval to quote: corrected for the choice if this is the lowest of several sources."""
        return next((each for each in self.intervals if each.lowest_of), self.shown)

    @property
    def population(self) -> StatedInterval | None:
        """The first interval for the population, if the number's own is for the test set."""
        found = (each for each in self.intervals if each.claim is Claim.POPULATION)
        first = next(found, None)
        return None if first is self.own else first

    @property
    def all_flags(self) -> tuple[str, ...]:
        """The flags of the number and of all its intervals."""
        return (*self.flags, *(flag for each in self.intervals for flag in each.flags))

    @property
    def shown_flags(self) -> tuple[str, ...]:
        """The flags of the number and of the interval that a table prints."""
        return (*self.flags, *(self.own.flags if self.own else ()))

    def with_subject(self, **facts: object) -> Number:
        """Return the same number of a subject with other facts."""
        return self.model_copy(update={"subject": self.subject.model_copy(update=facts)})

    def with_intervals(self, *intervals: StatedInterval) -> Number:
        """Return the same number with other intervals."""
        return self.model_copy(update={"intervals": intervals})

    def for_test_set(self) -> Number:
        """Return the same number with all intervals for this test set alone."""
        claim = {"claim": Claim.TEST_SET}
        return self.with_intervals(*(each.model_copy(update=claim) for each in self.intervals))


def join_intervals(numbers: Iterable[Number]) -> list[Number]:
    """The numbers, where those that differ in their intervals alone are one with all intervals.

    Splitting gives another value, so its number stays apart. A bound for the population belongs
    to that for the test set.
    """
    found: dict[object, Number] = {}
    for at, number in enumerate(numbers):
        same = number.subject, number.metric, number.gamma, number.is_split
        key: object = same if number.intervals else at
        if key in found:
            first = found[key]
            joined = (*first.intervals, *number.intervals)
            flags = tuple(dict.fromkeys((*first.flags, *number.flags)))
            found[key] = first.model_copy(update={"intervals": joined, "flags": flags})
        else:
            found[key] = number
    return list(found.values())


def split_intervals(number: Number) -> Iterator[Number]:
    """A number for each interval; the value of a lower bound is its lower end."""
    for each in number.intervals:
        value = each.low if number.is_lower_bound else number.value
        yield number.model_copy(update={"intervals": (each,), "value": value})
