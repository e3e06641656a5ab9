from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from helpers import Stray
from nppr.budget import Budget
from nppr.checks import check_results
from nppr.flags import (
    ATTACK_PARTS,
    ATTACK_TOO_WEAK,
    FEW_DRAWS,
    FEW_INPUTS,
    GRADIENT_MASKING,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    NPPR_ABOVE_PARENT,
    NPPR_ABOVE_PR,
    ONE_COMPONENT,
)
from nppr.report.schema import Flag, Result, failed, result
from nppr.sources import AutoAttack
from nppr.statistics.estimates import adversarial, probabilistic
from nppr.tally import Evaluate, Metric, Tally

BUDGET = Budget.linf(0.1)
INPUTS = 100


def tally(right: Any, draws: int = 100, clean: Any = None) -> Tally[Evaluate]:
    counts = np.asarray(right, dtype=np.int64)
    known = np.ones(len(counts), bool) if clean is None else np.asarray(clean, bool)
    positions = np.arange(len(counts))
    return Tally(Evaluate, positions, positions % 2, known, counts, draws, draws, 1)


def broken(inputs: Sequence[int], draws: int = 100, clean: Any = None) -> Tally[Evaluate]:
    """100 inputs, of which some failed once."""
    right = np.full(INPUTS, draws)
    right[list(inputs)] -= 1
    return tally(right, draws, clean)


def source(name: str, metric: Metric, budget: Budget | None = BUDGET) -> Stray:
    made = Stray(budget, 0.0, name)
    made.metric = metric
    return made


def entry(name: str, floor: float = 0.0, **changes: Any) -> dict[str, Any]:
    family = {"floor": floor, "components": 7, "dependency": "joint"}
    diagnostics = {"max_weight": 0.9, "realised_std": 0.5}
    return {
        "source": name,
        "family": family | {key: value for key, value in changes.items() if key in family},
        "diagnostics": diagnostics | {k: value for k, value in changes.items() if k in diagnostics},
    }


def check(
    measured: Mapping[Stray, Tally[Evaluate]] | None = None,
    distributions: Sequence[Mapping[str, Any]] = (),
    results: Sequence[Result] = (),
    clean: Tally[Evaluate] | None = None,
    classes: int = 10,
) -> list[Flag]:
    found = check_results(
        results,
        {each.name: counts for each, counts in (measured or {}).items()},
        list(measured or {}),
        distributions,
        tally(np.ones(INPUTS), 1) if clean is None else clean,
        classes,
        0.95,
    )
    return list(found)


def told(flags: Sequence[Flag]) -> list[tuple[str, str | None]]:
    return [(flag.id, flag.source) for flag in flags]


@pytest.mark.parametrize("name", ["uniform", "square", "square:queries=9"])
def test_gradient_masking(name: str) -> None:
    other = source(name, Metric.PR if name == "uniform" else Metric.AR)
    pgd = source("pgd", Metric.AR)
    attacked = broken([1, 2], draws=1)
    three = {pgd: attacked, other: broken([1, 3, 4, 5])}
    assert told(check(three)) == [(GRADIENT_MASKING, name)]
    assert f"{name} breaks 3 inputs" in check(three)[0].message
    assert check({pgd: attacked, other: broken([1, 2, 3, 4])}) == []
    # Without an attack by gradients, with a second that broke them, or in another budget:
    assert check({other: broken([1, 3, 4, 5])}) == []
    assert check({**three, source("cw:steps=5", Metric.AR): broken([4], draws=1)}) == []
    elsewhere = source(name, other.metric, Budget.linf(0.2))
    assert check({pgd: attacked, elsewhere: broken([1, 3, 4, 5])}) == []
    # Inputs that were wrong before do not count.
    wrong = np.arange(INPUTS) != 5
    assert check({pgd: broken([1], 1, wrong), other: broken([3, 4, 5], clean=wrong)}) == []


def test_attack_too_weak() -> None:
    pgd, learned = source("pgd:steps=20", Metric.AR), source("nppr", Metric.NPPR)
    assert check({pgd: broken([7], 1), learned: broken([7])}) == []
    (flag,) = check({pgd: broken([7], 1), learned: broken([7, 8])})
    assert (flag.id, flag.source) == (ATTACK_TOO_WEAK, "nppr")
    assert "a learned draw breaks 1 input that" in flag.message
    autoattack = source("autoattack", Metric.AR)  # the stronger attack broke it
    assert check({pgd: broken([7], 1), autoattack: broken([8], 1), learned: broken([7, 8])}) == []


@pytest.mark.parametrize(
    ("name", "metric"),
    [("autoattack", Metric.AR), ("universal", Metric.AR), ("weak-adversary", Metric.PR)],
)
def test_sources_that_follow_gradients_otherwise_mask_nothing(name: str, metric: Metric) -> None:
    pgd, other = source("pgd", Metric.AR), source(name, metric)
    assert check({pgd: broken([7], 1), other: broken(range(50))}) == []


def test_attacks_and_corruptions_of_other_kinds_say_nothing() -> None:
    pgd = source("pgd", Metric.AR)
    for other in (source("mine", Metric.AR), source("blur", Metric.CORRUPTION, None)):
        assert check({pgd: broken([], 1), other: broken(range(50))}) == []
    noise = source("mine", Metric.PR, None)
    assert check({source("pgd", Metric.AR, None): broken([], 1), noise: broken([1, 2, 3])}) == []


def test_parts_of_autoattack_that_need_more_classes() -> None:
    attack = AutoAttack(BUDGET)
    for classes, told_ in ((3, [(ATTACK_PARTS, "autoattack")]), (4, [])):
        found = check_results((), {}, [attack], (), tally(np.ones(INPUTS), 1), classes, 0.95)
        assert told(found) == told_
        assert all("apgd-t" in flag.message for flag in found)


def test_few_draws() -> None:
    for draws, flags in ((9, [(FEW_DRAWS, "uniform")]), (10, [])):
        rows = probabilistic(tally(np.full(INPUTS, draws), draws), 0.95)
        assert told(check(results=[result("uniform", row) for row in rows])) == flags
    attack = result("pgd", adversarial(tally(np.ones(INPUTS), 1), 0.95))
    assert check(results=[attack, failed("uniform", Metric.PR, 0.95, "no")]) == []


def test_few_inputs() -> None:
    assert told(check(clean=tally([1] * 29 + [0] * 5, 1))) == [(FEW_INPUTS, None)]
    assert check(clean=tally([1] * 30 + [0] * 5, 1)) == []


@pytest.mark.parametrize(
    ("right", "inputs", "classes", "raised"),
    [
        (16, 100, 10, True),  # the interval reaches chance
        (1490, 10_000, 10, True),  # above chance for sure, but hardly
        (1510, 10_000, 10, False),
        (30, 100, 10, False),
        (590, 1000, 2, True),
        (620, 1000, 2, False),
        (50, 10_000, 1000, False),
    ],
)
def test_near_chance(right: int, inputs: int, classes: int, raised: bool) -> None:
    clean = tally([1] * right + [0] * (inputs - right), 1)
    flags = {flag.id for flag in check(clean=clean, classes=classes)}
    assert (NEAR_CHANCE in flags) is raised


def rates(mean: float, spread: float = 0.0) -> Tally[Evaluate]:
    """100 inputs whose shares of right draws alternate around a mean."""
    return tally(np.round(100 * (mean + spread * (-1.0) ** np.arange(INPUTS))))


@pytest.mark.parametrize("noise", ["gaussian", "uniform", "laplace"])
def test_nppr_above_pr(noise: str) -> None:
    learned, other = source("nppr", Metric.NPPR), source(noise, Metric.PR)
    (flag,) = check({learned: rates(0.8), other: rates(0.7)}, [entry("nppr")])
    assert (flag.id, flag.source) == (NPPR_ABOVE_PR, "nppr")
    assert flag.message.startswith(f"10.0 points above the PR of {noise}")
    assert check({learned: rates(0.7), other: rates(0.7)}, [entry("nppr")]) == []
    assert check({learned: rates(0.6), other: rates(0.7)}, [entry("nppr")]) == []
    # Standard error 0.302 / 10: five points are 1.66 of them, four 1.33.
    assert check({learned: rates(0.55, 0.3), other: rates(0.5)}, [entry("nppr")])
    assert check({learned: rates(0.54, 0.3), other: rates(0.5)}, [entry("nppr")]) == []
    assert check({learned: rates(0.8), other: rates(0.7)}, [entry("nppr", floor=0.5)]) == []
    scaled = source(f"{noise}:scale=2", Metric.PR)
    assert check({learned: rates(0.8), scaled: rates(0.7)}, [entry("nppr")]) == []
    elsewhere = source(noise, Metric.PR, Budget.linf(0.2))
    assert check({learned: rates(0.8), elsewhere: rates(0.7)}, [entry("nppr")]) == []


def test_only_inputs_that_are_right_without_noise_are_compared() -> None:
    clean = np.arange(INPUTS) < 50
    high = tally(np.where(clean, 50, 100), clean=clean)
    low = tally(np.where(clean, 60, 0), clean=clean)
    measured = {source("nppr", Metric.NPPR): high, source("uniform", Metric.PR): low}
    assert check(measured, [entry("nppr")]) == []


def test_nppr_above_a_larger_floor() -> None:
    free, bound = source("nppr", Metric.NPPR), source("nppr:floor=0.5", Metric.NPPR)
    entries = [entry("nppr"), entry("nppr:floor=0.5", 0.5)]
    above = {free: rates(0.8), bound: rates(0.7)}
    assert told(check(above, entries)) == [(NPPR_ABOVE_PARENT, "nppr")]
    assert check({free: rates(0.7), bound: rates(0.8)}, entries) == []
    assert check({free: rates(0.54, 0.3), bound: rates(0.5)}, entries) == []
    # Of another family, or not measured:
    assert check(above, [entries[0], entry("nppr:floor=0.5", 0.5, components=3)]) == []
    assert check({free: rates(0.8)}, entries) == []


def test_repeated_fits_are_compared_with_but_not_flagged() -> None:
    free, other = source("nppr", Metric.NPPR), source("nppr:fit-seed=1", Metric.NPPR)
    entries = [entry("nppr"), entry("nppr:fit-seed=1")]
    noise = source("uniform", Metric.PR)
    assert check({free: rates(0.6), other: rates(0.9), noise: rates(0.7)}, entries) == []
    bound = source("nppr:floor=0.5:fit-seed=1", Metric.NPPR)
    above = {free: rates(0.6), other: rates(0.9), bound: rates(0.5)}
    floors = [*entries, entry("nppr:floor=0.5:fit-seed=1", 0.5)]
    assert told(check(above, floors)) == [(NPPR_ABOVE_PARENT, "nppr")]


def test_what_learned_noise_looks_like() -> None:
    assert check(distributions=[entry("nppr", max_weight=0.99, realised_std=0.1)]) == []
    found = check(distributions=[entry("nppr", max_weight=0.995, realised_std=0.09)])
    assert told(found) == [(ONE_COMPONENT, "nppr"), (NEARLY_DETERMINISTIC, "nppr")]
    assert check(distributions=[entry("nppr", max_weight=1.0, components=1)]) == []
