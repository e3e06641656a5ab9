from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from nppr.study.cache import Cache
from nppr.tensor_files import write_tensors

from nppr.noise import Dependency
from nppr.study.graph import Cell, Graph, Node
from nppr.study.orders import Orders, _pairs, orders_of
from nppr.study.plan import plan
from nppr.study.study_file import AXES, study_from
from nppr.study.study_records import StudyRecord
from study.toys import toy


def compared(
    folder: Path,
    rates: dict[tuple[str, int], float],
    *,
    label_only: bool = False,
    walks: bool = True,
    radius: str = "0.1",
) -> Orders:
    """Orders of families whose inputs are right with these probabilities, in 100 draws each."""
    cache, graph = Cache(folder), Graph()
    records = []
    for number, ((dependency, components), rate) in enumerate(rates.items()):
        known = {"number": number, "family": {"label_only": label_only}, "walks": walks}
        fit = graph.add(Node("fit", "f", known, {}, {}))
        measure = f"measure-{number}"
        right = np.random.default_rng(number).binomial(100, rate, 50)
        tensors = {"right": torch.from_numpy(right), "clean": torch.ones(50, dtype=torch.bool)}
        write_tensors(cache.folder(measure) / "tally.safetensors", tensors, {"draws": "100"})
        place = {
            **dict.fromkeys(AXES, ""),
            "source": "nppr",
            "dependency": dependency,
            "components": components,
            "fit_radius": "0.1",
            "radius": radius,
        }
        records.append(StudyRecord(Cell(place, 0, 0, measure, "c", fit.hash), {}))
    return orders_of(records, graph, cache)


def everything(rate: float = 0.5) -> dict[tuple[str, int], float]:
    return {(each.value, k): rate for k in (3, 7, 12) for each in Dependency}


def test_the_pairs_of_one_chain(tmp_path: Path) -> None:
    pairs = compared(tmp_path, everything()).pairs
    assert sum(pair.kind == "dependency" for pair in pairs) == 15
    assert sum(pair.kind == "components" for pair in pairs) == 8
    assert ("input, K = 3", "joint, K = 3") in {(pair.small, pair.large) for pair in pairs}
    assert len({(pair.small, pair.large) for pair in pairs}) == 23


def test_a_pair_in_the_wrong_order_is_found_and_counted(tmp_path: Path) -> None:
    orders = compared(tmp_path, {("independent", 3): 0.5, ("label", 3): 0.7, ("joint", 3): 0.2})
    wrong = [(pair.small, pair.large) for pair in orders.pairs if pair.wrong]
    assert wrong == [("independent, K = 3", "label, K = 3")]
    assert orders.wrong == 1
    assert orders.raw == 1
    assert "3 nested pairs (3 of dependency, 0 of components): 1 in the wrong" in orders.summary()


def test_families_that_were_fitted_one_by_one_are_told(tmp_path: Path) -> None:
    rates = {("independent", 3): 0.5, ("label", 3): 0.7}
    assert not compared(tmp_path / "a", rates).apart
    apart = compared(tmp_path / "b", rates, walks=False)
    assert apart.apart
    assert apart.wrong == 1
    assert "are kept in order by nothing" in apart.summary()
    assert "by nothing" not in compared(tmp_path / "c", rates).summary()


def test_chance_is_no_wrong_order(tmp_path: Path) -> None:
    orders = compared(tmp_path, everything())
    assert orders.wrong == 0
    assert orders.raw > 0  # of equal families some come out higher by chance


def test_input_does_not_lie_inside_the_papers_joint(tmp_path: Path) -> None:
    families = {("input", 3): 0.5, ("joint", 3): 0.7}
    assert len(compared(tmp_path / "ours", families).pairs) == 1
    assert not compared(tmp_path / "paper", families, label_only=True).pairs


def test_pairs_are_tested_where_they_were_fitted(tmp_path: Path) -> None:
    orders = compared(tmp_path, everything(), radius="0.2")
    assert not orders.pairs
    assert orders.summary() == "no nested pairs"


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
    for _, small, large in _pairs([StudyRecord(cell, Path(), {}) for cell in graph.cells], graph):
        assert small.cell.fit is not None
        assert small.cell.seed == large.cell.seed
        steps = graph.nodes[small.cell.fit].determined_by["steps"]
        names = str(small.place["dependency"]), str(large.place["dependency"])
        found.append((*names, small.cell.seed, steps))
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
