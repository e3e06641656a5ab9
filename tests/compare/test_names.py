"""Names tell entries apart by what differs, else by folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from compare.runs import a_run
from nppr.compare.entries import Gathered, gather
from nppr.compare.names import differing, names_of

ONES = np.ones(3, np.bool_)


def entry(folder: str, **facts: Any) -> Gathered:
    return Gathered((a_run(folder, ONES, {}, **facts),))


def test_classifiers_with_names_of_their_own_keep_them() -> None:
    assert names_of([entry("x", classifier="a"), entry("y", classifier="b")]) == ["a", "b"]


def test_the_same_classifier_is_told_by_settings() -> None:
    entries = [entry("x", eps="0.1"), entry("y", eps="0.2"), entry("z", classifier="b")]
    assert names_of(entries) == ["net, linf 0.1", "net, linf 0.2", "b"]


def test_nested_settings_are_named() -> None:
    entries = [entry("x", fit={"family": {"floor": rho}}) for rho in (0.0, 0.5)]
    assert names_of(entries) == ["net, fit family floor 0", "net, fit family floor 0.5"]
    assert differing(entries)[1] == {"fit family floor": "0.5"}


def test_long_names_give_way_to_the_folder() -> None:
    entries = [entry(f"runs/{name}", one=name * 60) for name in "xy"]
    assert names_of(entries) == ["net (x)", "net (y)"]


def test_a_name_says_no_more_than_is_needed() -> None:
    entries = [
        entry("x", eps="0.1", draws=16),
        entry("y", eps="0.2", draws=16),
        entry("z", eps="0.2", draws=32),
    ]
    assert names_of(entries) == [
        "net, linf 0.1",
        "net, linf 0.2, draws 16",
        "net, linf 0.2, draws 32",
    ]


def test_settings_that_only_some_have_are_one_line() -> None:
    fitted = {"family": {"floor": 0.5}, "calls": 10}
    entries = [entry("x", fit=fitted, options={}), entry("y", fit=None, options={"u": {"s": 1.0}})]
    assert differing(entries) == [{"fit": "yes", "options": "-"}, {"fit": "-", "options": "yes"}]


def test_nothing_that_differs_gives_folders_and_then_paths() -> None:
    assert names_of([entry("p/x"), entry("p/y")]) == ["net (x)", "net (y)"]
    assert names_of([entry("p/x"), entry("q/x")]) == ["net (p/x)", "net (q/x)"]


def test_runs_of_the_same_seed_are_not_gathered() -> None:
    runs = [a_run(name, ONES, {}, seed=seed) for name, seed in (("x", 0), ("y", 1), ("z", 1))]
    assert [len(each.runs) for each in gather(runs)] == [1, 1, 1]
    assert [len(each.runs) for each in gather(runs[:2])] == [2]


def test_the_order_of_entries_is_that_of_the_runs() -> None:
    first, second = (a_run(name, ONES, {}, classifier=name, seed=5) for name in "ba")
    again = replace(a_run("c", ONES, {}, classifier="b", seed=1), path=Path("c"))
    found = gather([first, second, again])
    assert [[str(run.path) for run in each.runs] for each in found] == [["c", "b"], ["a"]]
