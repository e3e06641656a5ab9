"""Are nested families in order? A larger family can never have a larger infimum.

Pairs that differ in one step only: what the noise may depend on, or the number of components. Both
are measured on the same inputs with the same draws, at the radius of the fit. A pair is tied where both
have the same rate on every input, as where a search kept the noise it started from: that is no evidence
of an order. It is in the wrong order where the larger family is the more robust one beyond chance:
paired one-sided 95 % test, Holm over all pairs that are not tied.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from nppr.noise.rungs import Dependency
from nppr.statistics import exceeds_approximately, holm
from nppr.study.study_records import StudyRecord

ALPHA = 0.05
LARGE = 0.1
"""Percentage points above which a difference in the wrong direction is counted, chance or not."""

SAME = (
    "data", "classifier", "group", "covariance", "upsampler", "loss", "feature_model", "floor",
    "epochs", "norm", "fit_radius",
)  # fmt: skip

Family = tuple[Dependency, int]
Families = dict[Family, StudyRecord]


@dataclass(frozen=True)
class Pair:
    """Two nested families: how much more robust the larger one came out, in percentage points."""

    kind: str
    place: dict[str, str | int | float | None]
    small: str
    large: str
    points: float
    p_value: float
    tied: bool
    wrong: bool


@dataclass(frozen=True)
class Orders:
    """All nested pairs of a study; `apart` is whether any were fitted one by one."""

    pairs: tuple[Pair, ...]
    apart: bool = False

    @property
    def wrong(self) -> int:
        """Pairs in the wrong order by the paired test."""
        return sum(pair.wrong for pair in self.pairs)

    @property
    def tied(self) -> int:
        """Pairs with the same rate on every input."""
        return sum(pair.tied for pair in self.pairs)

    @property
    def in_order(self) -> int:
        """Pairs in which the larger family is the less robust one."""
        return sum(pair.points < 0 for pair in self.pairs)

    @property
    def raw(self) -> int:
        """Pairs in which the larger family is more than 0.1 point more robust, chance or not."""
        return sum(pair.points > LARGE for pair in self.pairs)

    def summary(self) -> str:
        """One sentence."""
        if not self.pairs:
            return "no nested families, so no order to check"
        kinds = [
            f"{sum(pair.kind == kind for pair in self.pairs)} of {kind}"
            for kind in ("dependency", "components")
        ]
        apart = "; nothing keeps families in order that are fitted one by one (preset paper)"
        return (
            f"{len(self.pairs)} nested pairs ({', '.join(kinds)}): {self.in_order} in order,"
            f" {self.tied} tied (the same on every input), {self.wrong} in the wrong order (paired"
            f" one-sided 95 % test, Holm over pairs that are not tied); {self.raw} raw differences"
            f" above 0.1 percentage points, the largest {max(pair.points for pair in self.pairs):.2f}"
            + apart
            * self.apart
        )


def check_orders(records: Sequence[StudyRecord]) -> Orders:
    """Test all nested pairs among the records."""
    found = []
    for kind, small, large in nested_pairs(records):
        lower, higher = small.rates(), large.rates()
        excess = 100 * float((higher - lower).mean()) if len(lower) else 0.0
        tied = np.array_equal(higher, lower)
        found.append((kind, small, large, excess, exceeds_approximately(higher, lower), tied))
    apart = np.array([not each[-1] for each in found], dtype=bool)
    wrong = np.zeros(len(found), bool)
    wrong[apart] = holm(np.array([each[-2] for each in found], dtype=np.float64)[apart], ALPHA)
    pairs = (
        Pair(
            kind=kind,
            place={axis: getattr(small.place, axis) for axis in SAME}
            | {"fit_seed": small.cell.fit_seed},
            small=_name(small),
            large=_name(large),
            points=excess,
            p_value=p,
            tied=tied,
            wrong=bool(rejected),
        )
        for (kind, small, large, excess, p, tied), rejected in zip(found, wrong, strict=True)
    )
    return Orders(tuple(pairs), any(_is_paper(large) for _, _, large, *_ in found))


def nested_pairs(
    records: Sequence[StudyRecord],
) -> Iterator[tuple[str, StudyRecord, StudyRecord]]:
    """Nested pairs within each chain, each once, on the first evaluation seed that has both.

    Only measurements on what was fitted on, at the radius of the fit: elsewhere families need not be in
    order.
    """
    chains: dict[Hashable, dict[int, Families]] = {}
    for record in records:
        place, cell = record.place, record.cell
        here = place.radius == place.fit_radius and place.target == place.classifier
        if cell.chain is not None and here:
            seeds = chains.setdefault((cell.chain, cell.draws, place.floor, place.group), {})
            family = Dependency(place.dependency), int(place.components)
            seeds.setdefault(cell.seed, {}).setdefault(family, record)
    measured: set[tuple[str, str]] = set()
    for seeds in chains.values():
        seen: set[tuple[Family, Family]] = set()
        for families in seeds.values():
            for kind, small, large in _nested(families):
                both = families[small].cell.measure, families[large].cell.measure
                if (small, large) not in seen and both not in measured:
                    yield kind, families[small], families[large]
                seen.add((small, large))
                measured.add(both)


def _nested(families: Families) -> Iterator[tuple[str, Family, Family]]:
    """The pairs of one chain and seed that differ in one step.

    In the preset paper the weights of joint noise see the label only: input noise is not inside it.
    """
    counts = sorted({components for _, components in families})
    for components, less, more in product(counts, Dependency, Dependency):
        small, large = (less, components), (more, components)
        if less is more or not {small, large} <= families.keys():
            continue
        if more.contains(less, label_only=_is_paper(families[large])):
            yield "dependency", small, large
    for dependency in Dependency:
        if not dependency.is_fitted:  # whatever the components it starts from
            continue
        own = [each for each in counts if (dependency, each) in families]
        for few, many in pairwise(own):
            yield "components", (dependency, few), (dependency, many)


def _is_paper(record: StudyRecord) -> bool:
    return record.cell.chain is not None and record.cell.chain.fit.is_paper


def _name(record: StudyRecord) -> str:
    return f"{record.place.dependency}, K = {record.place.components}"
