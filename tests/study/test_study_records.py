from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from helpers import FAMILIES
from nppr.core.tally import FloatArray
from nppr.study.graph import Chain, FitNode, StudyCell
from nppr.study.plan import plan
from nppr.study.study_file import FitEntry, Place, study_from
from nppr.study.study_records import ALPHA, Orders, StudyRecord, check_orders, nested_pairs
from study.toys import toy


@dataclass(frozen=True)
class Known(StudyRecord):
    """A record with rates that are not read from files."""

    known: FloatArray = field(default_factory=lambda: np.zeros(0))

    def rates(self) -> FloatArray:
        return self.known


def compared(
    rates: dict[tuple[str, int], float],
    *,
    preset: str = "nppr",
    radius: str = "0.1",
    same: tuple[str, int] | None = None,
) -> Orders:
    """Orders of families whose inputs are correct with these probabilities, in 100 draws each.

    The family `same` has the draws of the one before it.
    """
    fit = FitEntry(preset=preset)
    chain = Chain("cnn", "cnn", "linf", 0.1, None, None, "margin", None, 0, fit)
    records = []
    for number, ((dependency, components), rate) in enumerate(rates.items()):
        place = Place(dependency=dependency, components=components, fit_radius="0.1", radius=radius)
        cell = StudyCell(place, 0, f"measure-{number}", "clean", 100, f"fit-{number}", chain)
        drawn_by = number - ((dependency, components) == same)
        correct = np.random.default_rng(drawn_by).binomial(100, rate, 50)
        records.append(Known(cell, Path(), {}, known=correct / 100))
    return check_orders(records)


def everything(rate: float = 0.5) -> dict[tuple[str, int], float]:
    return {(each.value, k): rate for k in (3, 7, 12) for each in FAMILIES}


def test_the_pairs_of_one_chain() -> None:
    pairs = compared(everything()).pairs
    assert sum(pair.kind == "dependency" for pair in pairs) == 15
    assert sum(pair.kind == "components" for pair in pairs) == 8
    assert ("input, K = 3", "joint, K = 3") in {(pair.small, pair.large) for pair in pairs}
    assert len({(pair.small, pair.large) for pair in pairs}) == 23


def test_a_pair_in_the_wrong_order_is_found_and_counted() -> None:
    orders = compared({("independent", 3): 0.5, ("label", 3): 0.7, ("joint", 3): 0.2})
    wrong = [(pair.small, pair.large) for pair in orders.pairs if pair.wrong]
    assert wrong == [("independent, K = 3", "label, K = 3")]
    assert orders.wrong == 1
    assert orders.raw == 1
    assert orders.in_order == 2
    assert orders.tied == 0
    summary = (
        "3 nested pairs (3 of dependency, 0 of components): 2 in order, 0 tied (the same on every"
    )
    assert summary in orders.summary()
    assert " 1 in the wrong order" in orders.summary()


def test_ties_are_counted_apart_from_pairs_in_order() -> None:
    """A child that kept its parent's noise has its tally: no evidence of an order, nor in the test."""
    rates = {("independent", 3): 0.5, ("label", 3): 0.5, ("joint", 3): 0.4}
    orders = compared(rates, same=("label", 3))
    assert (orders.in_order, orders.tied, orders.wrong, len(orders.pairs)) == (2, 1, 0, 3)
    assert [pair.small for pair in orders.pairs if pair.tied] == ["independent, K = 3"]
    assert "2 in order, 1 tied (the same on every input), 0 in the wrong order" in orders.summary()


def test_ties_do_not_hide_a_wrong_order() -> None:
    """Holm over both pairs would ask for a p-value of 0.025."""
    families = {("label", 3): 0.5, ("label", 7): 0.5, ("label", 12): 0.528}
    (tied, apart) = compared(families, same=("label", 7)).pairs
    assert tied.tied
    assert ALPHA / 2 < apart.p_value < ALPHA
    assert apart.wrong


def test_families_that_were_fitted_one_by_one_are_named() -> None:
    rates = {("independent", 3): 0.5, ("label", 3): 0.7}
    assert not compared(rates).apart
    apart = compared(rates, preset="paper")
    assert apart.apart
    assert apart.wrong == 1
    assert "nothing keeps families in order" in apart.summary()
    assert "one by one" not in compared(rates).summary()


def test_chance_is_no_wrong_order() -> None:
    orders = compared(everything())
    assert orders.wrong == 0
    assert orders.raw > 0  # of equal families some come out higher by chance


def test_input_does_not_lie_inside_the_papers_joint() -> None:
    families = {("input", 3): 0.5, ("joint", 3): 0.7}
    assert len(compared(families).pairs) == 1
    assert not compared(families, preset="paper").pairs


def test_pairs_are_tested_where_they_were_fitted() -> None:
    orders = compared(everything(), radius="0.2")
    assert not orders.pairs
    assert orders.summary() == "no nested families, so no order to check"


def pairs_of(*grids: dict[str, Any], classifiers: int = 1) -> list[tuple[str, str, int, int]]:
    """Both families, the evaluation seed and the steps of the smaller fit, for every pair."""
    entries = [{"name": "cnn", "model": "digits-cnn"}, {"name": "other", "model": "digits-cnn"}]
    entries[1]["mean"], entries[1]["std"] = "0.5", "0.5"
    both = {"classifiers": ["cnn"], "fit_radii": [0.2], "components": [2]}
    graph = plan(
        study_from(
            toy(classifiers=entries[:classifiers], grids=[{**both, **grid} for grid in grids])
        )
    )
    found = []
    for _, small, large in nested_pairs([StudyRecord(c, Path(), {}) for c in graph.cells]):
        assert small.cell.fit is not None
        assert small.cell.seed == large.cell.seed
        fit = graph.nodes[small.cell.fit]
        assert isinstance(fit, FitNode)
        names = small.place.dependency, large.place.dependency
        found.append((*names, small.cell.seed, fit.stage.steps))
    return found


def test_grids_of_other_settings_are_not_compared() -> None:
    alone = {"dependencies": ["independent"]}
    both = {"dependencies": ["independent", "label"]}
    (expected,) = pairs_of(both)
    assert expected[:3] == ("independent", "label", 0)
    for other in ({"fit": {"calls": 8192}}, {"draws": 7}, {"seeds": [3]}):
        assert pairs_of({**alone, **other}, both) == [expected]
        assert pairs_of({**alone, **other}, {"dependencies": ["label"]}) == []
    assert pairs_of(alone, {"dependencies": ["label"]}) == [expected]


def test_pairs_are_tested_on_what_they_were_fitted_on() -> None:
    grid = {"dependencies": ["independent", "label"]}
    assert pairs_of({**grid, "targets": ["other"]}, classifiers=2) == []
    assert len(pairs_of({**grid, "targets": ["own", "other"]}, classifiers=2)) == 1


def test_only_the_first_seed_of_a_pair_counts() -> None:
    assert [
        each[2] for each in pairs_of({"dependencies": ["label", "joint"], "seeds": [4, 5]})
    ] == [4]


def test_pairs_that_see_no_features_are_counted_once_for_all_feature_models() -> None:
    grid = {
        "dependencies": ["independent", "label", "input"],
        "feature_models": ["cnn", "other"],
    }
    names = [each[:2] for each in pairs_of(grid, classifiers=2)]
    assert sorted(names) == [
        ("independent", "input"), ("independent", "input"), ("independent", "label"),
    ]  # fmt: skip
