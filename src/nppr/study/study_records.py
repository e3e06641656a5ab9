"""The measurements of a finished study, and the order of nested families among them.

A larger family can never have a larger infimum. The pairs differ in one step: what the noise may depend
on, or the number of components. Both families are measured on the same inputs with the same draws, at
the radius of the fit. A pair is tied if both have the same rate on every input, for example because a
search kept the noise it started from. A tie is not evidence of an order. A pair is in the wrong order
if the larger family is more robust beyond chance: paired one-sided 95 % test, Holm over all pairs that
are not tied.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from nppr.core.tally import Direction, FloatArray, Metric
from nppr.noise.rungs import Dependency
from nppr.report.run_files import read_run
from nppr.search.search_record import FinishedStageRecord, LearnedNoiseRecord
from nppr.statistics import exceeds_approximately, holm
from nppr.study.graph import FitNode, Graph, Node, StudyCell
from nppr.study.node_work import FinishedNode, NodeCache
from nppr.study.study_file import Place
from nppr.system.records import read_record

DIAGNOSTICS = ("entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std")
VALUE_NAMES = {
    Metric.ACCURACY: "accuracy",
    Metric.NORMALISED_ACCURACY: "normalised",
    Metric.STRESS: "stress",
    Metric.NORMALISED_STRESS: "normalised_stress",
}

ALPHA = 0.05
LARGE_DIFFERENCE = 0.1
"""Percentage points above which a difference in the wrong direction is counted, chance or not."""

SHARED_AXES = (
    "data", "classifier", "group", "covariance", "upsampler", "loss", "feature_model", "floor",
    "epochs", "norm", "fit_radius",
)  # fmt: skip


@dataclass(frozen=True)
class StudyValue:
    """A value of a measurement, with the interval to quote and what it bounds, if it has them."""

    value: float
    interval: tuple[float, float] | None = None
    direction: Direction | None = None


@dataclass(frozen=True)
class StudyRecord:
    """One measurement: its values by name, and its folder."""

    cell: StudyCell
    folder: Path
    values: Mapping[str, StudyValue]

    @property
    def place(self) -> Place:
        """Its values on all axes."""
        return self.cell.place

    def rates(self) -> FloatArray:
        """Return the fraction of draws classified correctly for each clean-correct input, `(N,)`."""
        lines = read_run(self.folder).report.per_input
        correct = lines["clean_correct"] == 1
        rates: FloatArray = np.asarray(lines["correct"] / lines["draws"], np.float64)[correct]
        return rates


def read_records(
    graph: Graph, folders: NodeCache, finished: Mapping[str, FinishedNode]
) -> list[StudyRecord]:
    """Return a record for every cell whose nodes are all finished."""
    measured = cache(lambda key: _read_measured(folders.folder(key), finished[key].seconds))
    fitted = cache(lambda key: _read_fitted(graph.nodes[key], folders, finished[key].seconds))
    records = []
    for cell in graph.cells:
        if cell.measure in finished and (cell.fit is None or cell.fit in finished):
            values = measured(cell.measure) | (fitted(cell.fit) if cell.fit else {})
            records.append(StudyRecord(cell, folders.folder(cell.measure) / "run", values))
    return records


def _read_measured(folder: Path, seconds: float) -> dict[str, StudyValue]:
    """Return the first value of each kind in the report of a node."""
    values = {"seconds": StudyValue(seconds)}
    for row in read_run(folder / "run").report.numbers:
        if row.value is None or row.metric is Metric.PROB_ACC or row.with_references:
            continue
        interval = None if row.shown is None else row.shown.ends
        name = VALUE_NAMES.get(row.metric, "robustness")
        values.setdefault(name, StudyValue(row.value, interval, row.direction))
        if row.metric is not Metric.ACCURACY:
            values["calls"] = StudyValue(float(row.calls))
    return values


def _read_fitted(node: Node, folders: NodeCache, seconds: float) -> dict[str, StudyValue]:
    """Return the values of a fit; its loss and PR are means of the last tenth of its steps."""
    assert isinstance(node, FitNode)
    folder = folders.folder(node.hash)
    (learned,) = (folder / "distributions").glob("*.safetensors")
    (finished,) = (folder / "fit").glob("*.done.safetensors")
    diagnostics = LearnedNoiseRecord.model_validate(read_record(learned)[1]).diagnostics
    stage = FinishedStageRecord.model_validate(read_record(finished)[1]).stage
    epochs = stage.fit_calls / max(1, node.data.sizes.fit * node.search.recipe.draws)
    found = {name: float(getattr(diagnostics, name)) for name in DIAGNOSTICS}
    found |= {
        "fit_calls": float(stage.fit_calls),
        "fit_seconds": seconds,
        "fit_seconds_per_epoch": seconds / epochs if epochs else 0.0,
    }
    if stage.loss:
        last = max(1, len(stage.loss) // 10)
        found["fit_loss"] = sum(stage.loss[-last:]) / last
        found["fit_pr"] = sum(stage.running_pr[-last:]) / last
    return {name: StudyValue(value) for name, value in found.items()}


FamilyKey = tuple[Dependency, int]
Families = dict[FamilyKey, StudyRecord]


@dataclass(frozen=True)
class Pair:
    """Two nested families; `points` is how much more robust the larger one is, in percentage points."""

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
    """All nested pairs of a study; `apart` states whether families were fitted one by one."""

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
        """Pairs in which the larger family is less robust."""
        return sum(pair.points < 0 for pair in self.pairs)

    @property
    def raw(self) -> int:
        """Pairs in which the larger family is more than 0.1 points more robust, chance or not."""
        return sum(pair.points > LARGE_DIFFERENCE for pair in self.pairs)

    def summary(self) -> str:
        """Return one sentence."""
        if not self.pairs:
            return "no nested families, so no order to check"
        kinds = [
            f"{sum(pair.kind == kind for pair in self.pairs)} of {kind}"
            for kind in ("dependency", "components")
        ]
        summary = (
            f"{len(self.pairs)} nested pairs ({', '.join(kinds)}): {self.in_order} in order,"
            f" {self.tied} tied (the same on every input), {self.wrong} in the wrong order (paired"
            f" one-sided 95 % test, Holm over pairs that are not tied); {self.raw} raw differences"
            f" above 0.1 percentage points, the largest {max(pair.points for pair in self.pairs):.2f}"
        )
        if self.apart:
            summary += "; nothing keeps families in order that are fitted one by one (preset paper)"
        return summary

    def as_dict(self) -> dict[str, object]:
        """Return everything as plain values for JSON."""
        return {
            "pairs": [asdict(pair) for pair in self.pairs],
            "in_order": self.in_order,
            "tied": self.tied,
            "wrong": self.wrong,
            "raw_above_0.1_point": self.raw,
            "fitted_apart": self.apart,
            "summary": self.summary(),
        }


def check_orders(records: Sequence[StudyRecord]) -> Orders:
    """Test all nested pairs among the records."""
    nested = list(nested_pairs(records))
    rates = [(small.rates(), large.rates()) for _, small, large in nested]
    p_values = np.array([exceeds_approximately(high, low) for low, high in rates], np.float64)
    tied = np.array([np.array_equal(low, high) for low, high in rates], bool)
    wrong = np.zeros(len(nested), bool)
    wrong[~tied] = holm(p_values[~tied], ALPHA)
    pairs = tuple(
        Pair(
            kind=kind,
            place={axis: getattr(small.place, axis) for axis in SHARED_AXES}
            | {"fit_seed": small.cell.fit_seed},
            small=_describe(small),
            large=_describe(large),
            points=100 * float((rates[i][1] - rates[i][0]).mean()) if len(rates[i][0]) else 0.0,
            p_value=float(p_values[i]),
            tied=bool(tied[i]),
            wrong=bool(wrong[i]),
        )
        for i, (kind, small, large) in enumerate(nested)
    )
    return Orders(pairs, any(_is_paper(large) for _, _, large in nested))


def nested_pairs(
    records: Sequence[StudyRecord],
) -> Iterator[tuple[str, StudyRecord, StudyRecord]]:
    """Yield the nested pairs of each chain, each once, on the first evaluation seed that has both.

    Only on the classifier and at the radius of the fit are families in order.
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
        seen: set[tuple[FamilyKey, FamilyKey]] = set()
        for families in seeds.values():
            for kind, small, large in _find_nested(families):
                both = families[small].cell.measure, families[large].cell.measure
                if (small, large) not in seen and both not in measured:
                    yield kind, families[small], families[large]
                seen.add((small, large))
                measured.add(both)


def _find_nested(families: Families) -> Iterator[tuple[str, FamilyKey, FamilyKey]]:
    """Yield the pairs of one chain and seed that differ in one step.

    With the preset paper, joint noise does not contain input noise: its weights see the label only.
    """
    counts = sorted({components for _, components in families})
    for components, less, more in product(counts, Dependency, Dependency):
        small, large = (less, components), (more, components)
        if less is more or not {small, large} <= families.keys():
            continue
        if more.contains(less, label_only=_is_paper(families[large])):
            yield "dependency", small, large
    for dependency in Dependency:
        if not dependency.is_fitted:  # its noise does not depend on the components it starts from
            continue
        own = [each for each in counts if (dependency, each) in families]
        for few, many in pairwise(own):
            yield "components", (dependency, few), (dependency, many)


def _is_paper(record: StudyRecord) -> bool:
    return record.cell.chain is not None and record.cell.chain.fit.is_paper


def _describe(record: StudyRecord) -> str:
    return f"{record.place.dependency}, K = {record.place.components}"
