"""What measurements reveal about themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers import Stray, learned_noise
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, Metric, Tally
from nppr.doctor.flags import (
    ATTACK_PARTS,
    ATTACK_TOO_WEAK,
    FEW_DRAWS,
    FEW_INPUTS,
    GRADIENT_MASKING,
    HEADLINE_MISSING,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    NOTHING_MEASURED,
    NPPR_ABOVE_PARENT,
    NPPR_ABOVE_PR,
    ONE_COMPONENT,
    SINGLE_ATTACK,
)
from nppr.doctor.result_checks import check_results
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STATIONARY, WHITE
from nppr.report.model import Flag
from nppr.report.number import CleanSubject, LearnedSubject, NoiseSubject, Number
from nppr.run.make_numbers import make_numbers
from nppr.search.search_record import DistributionRecord
from nppr.sources import AutoAttack, Guidance, Source, Uniform, parse_sources
from nppr.sources.custom import CustomAttack
from nppr.statistics.estimates import estimate_adversarial, estimate_probabilistic

BUDGET = Budget.linf(0.1)
INPUTS = 100
LEARNED = learned_noise(
    Distribution(Family(Dependency.LABEL, components=7), (1, 2, 2), 2), BUDGET
).describe()


def tally(correct: Any, draws: int = 100, clean: Any = None) -> Tally[Evaluate]:
    counts = np.asarray(correct, dtype=np.int64)
    known = np.ones(len(counts), bool) if clean is None else np.asarray(clean, bool)
    positions = np.arange(len(counts))
    return Tally(Evaluate, positions, positions % 2, known, counts, draws, draws, 1)


def broken(inputs: Sequence[int], draws: int = 100, clean: Any = None) -> Tally[Evaluate]:
    """100 inputs, of which some failed once."""
    correct = np.full(INPUTS, draws)
    correct[list(inputs)] -= 1
    return tally(correct, draws, clean)


def source(name: str, budget: Budget = BUDGET) -> Source:
    return parse_sources(name, budget)[0]


def name_of(floor: float, fit_seed: int | None) -> str:
    ends = [f"floor={floor:g}"] * bool(floor)
    ends += [] if fit_seed is None else [f"fit-seed={fit_seed}"]
    return ":".join(["nppr", *ends])


def learned(
    floor: float = 0.0,
    fit_seed: int | None = None,
    rung: Dependency = Dependency.LABEL,
    structure: str = ANY,
    name: str = "",
) -> Source:
    found = Stray(BUDGET, 0.0, name or name_of(floor, fit_seed))
    found.metric = Metric.NPPR
    found.dependency, found.structure = rung, structure
    found.floor, found.fit_seed = floor, fit_seed
    return found


def entry(
    floor: float = 0.0,
    fit_seed: int | None = None,
    components: int = 7,
    *,
    per_class: bool = False,
    **diagnostics: float,
) -> DistributionRecord:
    known = {"max_weight": 0.9, "realised_std": 0.5} | diagnostics
    return LEARNED.model_copy(
        update={
            "name": name_of(floor, fit_seed),
            "fit_seed": fit_seed,
            "family": replace(LEARNED.family, floor=floor, components=components),
            "diagnostics": LEARNED.diagnostics.model_copy(update=known),
            "search": LEARNED.search.model_copy(
                update={"settings": replace(LEARNED.search.settings, per_class=per_class)}
            ),
        }
    )


def check(
    measured: Mapping[Source, Tally[Evaluate]] | None = None,
    distributions: Sequence[DistributionRecord] = (),
    numbers: Sequence[Number] = (),
    clean: Tally[Evaluate] | None = None,
    classes: int = 10,
    *,
    alone: bool = False,
) -> list[Flag]:
    """The flags, that of a single attack only if it is asked for: most cases here have one attack."""
    found = check_results(
        numbers,
        {each.name: counts for each, counts in (measured or {}).items()},
        list(measured or {}),
        distributions,
        tally(np.ones(INPUTS), 1) if clean is None else clean,
        classes,
        0.95,
    )
    return [each for each in found if alone or each.id != SINGLE_ATTACK]


def named(flags: Sequence[Flag]) -> list[tuple[str, str | None]]:
    return [(flag.id, flag.source) for flag in flags]


def black_box(budget: Budget) -> Source:
    return CustomAttack(budget, lambda _, x, __: x, "black-box", guidance=Guidance.NOTHING)


@pytest.mark.parametrize("make", [Uniform, black_box])
def test_gradient_masking(make: Callable[[Budget], Source]) -> None:
    other, pgd = make(BUDGET), source("pgd")
    name = other.name
    attacked = broken([1, 2], draws=1)
    three = {pgd: attacked, other: broken([1, 3, 4, 5])}
    assert named(check(three)) == [(GRADIENT_MASKING, name)]
    assert f"{name} breaks 3 inputs" in check(three)[0].message
    assert check({pgd: attacked, other: broken([1, 2, 3, 4])}) == []
    # Without an attack by gradients, with a second that broke them, or in another budget:
    assert check({other: broken([1, 3, 4, 5])}) == []
    assert check({**three, source("cw:steps=5"): broken([4], draws=1)}) == []
    elsewhere = make(Budget.linf(0.2))
    assert check({pgd: attacked, elsewhere: broken([1, 3, 4, 5])}) == []
    # Misclassified inputs do not count.
    wrong = np.arange(INPUTS) != 5
    assert check({pgd: broken([1], 1, wrong), other: broken([3, 4, 5], clean=wrong)}) == []


def per_input(floor: float = 0.0) -> Source:
    found = Stray(BUDGET, 0.0, f"nppr:per-input:floor={floor}")
    found.metric, found.dependency = Metric.NPPR, Dependency.PER_INPUT
    return found


@pytest.mark.parametrize(
    ("sources", "flagged"),
    [
        ((source("pgd"),), "pgd"),
        ((source("pgd"), Uniform(BUDGET)), "pgd"),
        ((black_box(BUDGET),), "black-box"),
        ((source("pgd"), source("universal")), "pgd"),
        ((source("pgd"), learned()), "pgd"),
        ((source("pgd"), source("cw")), None),
        ((source("autoattack"),), None),
        ((source("pgd"), per_input()), None),
        ((Uniform(BUDGET),), None),
    ],
    ids=lambda each: "+".join(s.name for s in each) if isinstance(each, tuple) else str(each),
)
def test_ar_of_a_single_attack_is_flagged(sources: Sequence[Source], flagged: str | None) -> None:
    found = check({each: broken([], 1) for each in sources}, alone=True)
    expected = [] if flagged is None else [(SINGLE_ATTACK, flagged)]
    assert [pair for pair in named(found) if pair[0] == SINGLE_ATTACK] == expected


def test_attack_too_weak() -> None:
    pgd, noise = source("pgd:steps=20"), learned()
    assert check({pgd: broken([7], 1), noise: broken([7])}) == []
    (flag,) = check({pgd: broken([7], 1), noise: broken([7, 8])})
    assert (flag.id, flag.source) == (ATTACK_TOO_WEAK, "nppr")
    assert "a learned draw breaks 1 input that" in flag.message
    autoattack = source("autoattack")  # the stronger attack broke it
    assert check({pgd: broken([7], 1), autoattack: broken([8], 1), noise: broken([7, 8])}) == []


@pytest.mark.parametrize(
    "other",
    [
        *(source(name) for name in ("autoattack", "universal", "weak-adversary", "brightness")),
        CustomAttack(BUDGET, lambda _, x, __: x, "mine"),
    ],
    ids=lambda other: other.name,
)
def test_sources_that_follow_more_than_gradients_reveal_no_masking(other: Source) -> None:
    assert check({source("pgd"): broken([7], 1), other: broken(range(50))}) == []


def test_parts_of_autoattack_that_need_more_classes() -> None:
    attack = AutoAttack(BUDGET)
    for classes, expected in ((3, [(ATTACK_PARTS, "autoattack")]), (4, [])):
        found = check_results((), {}, [attack], (), tally(np.ones(INPUTS), 1), classes, 0.95)
        assert named(found) == expected
        assert all("apgd-t" in flag.message for flag in found)


def test_few_draws() -> None:
    for draws, flags in ((9, [(FEW_DRAWS, "uniform")]), (10, [])):
        rows = estimate_probabilistic(tally(np.full(INPUTS, draws), draws), 0.95)
        assert named(check(numbers=make_numbers(Uniform(BUDGET), rows))) == flags
    (attack,) = make_numbers(source("pgd"), [estimate_adversarial(tally(np.ones(INPUTS), 1), 0.95)])
    failed = Number(
        subject=NoiseSubject(source="uniform"), metric=Metric.PR, confidence=0.95, error="no"
    )
    assert FEW_DRAWS not in dict(named(check(numbers=[attack, failed])))


def test_a_headline_without_a_number_is_flagged() -> None:
    """NPPR of any set, AR and PR where nothing of them was measured; not the clean accuracy alone."""
    (attack,) = make_numbers(source("pgd"), [estimate_adversarial(tally(np.ones(INPUTS), 1), 0.95)])
    clean = attack.model_copy(update={"subject": CleanSubject(), "metric": Metric.ACCURACY})

    def missing(name: str, metric: Metric, **more: Any) -> Number:
        subject = LearnedSubject(**more) if name == "nppr" else NoiseSubject(source=name)
        return Number(subject=subject, metric=metric, confidence=0.95, error="no")

    noise, cw = missing("nppr", Metric.NPPR), missing("cw", Metric.AR)
    assert named(check(numbers=[clean, attack, noise])) == [(HEADLINE_MISSING, "nppr")]
    assert named(check(numbers=[clean, attack, cw])) == []
    assert named(check(numbers=[clean, attack, missing("uniform", Metric.PR)])) == [
        (HEADLINE_MISSING, "uniform")
    ]
    narrow = attack.model_copy(
        update={"subject": LearnedSubject(floor=0.5), "metric": Metric.NPPR, "draws": 100}
    )
    assert named(check(numbers=[clean, narrow, noise, cw])) == [
        (HEADLINE_MISSING, "nppr"),
        (HEADLINE_MISSING, "cw"),
    ]
    assert named(check(numbers=[clean, narrow, missing("nppr", Metric.NPPR, fit_seed=1)])) == []
    assert named(check(numbers=[clean, noise, cw])) == [(NOTHING_MEASURED, None)]
    assert named(check(numbers=[clean])) == []


def test_few_inputs() -> None:
    assert named(check(clean=tally([1] * 29 + [0] * 5, 1))) == [(FEW_INPUTS, None)]
    assert check(clean=tally([1] * 30 + [0] * 5, 1)) == []


@pytest.mark.parametrize(
    ("correct", "inputs", "classes", "raised"),
    [
        (16, 100, 10, True),  # the interval reaches chance
        (1490, 10_000, 10, True),  # certainly above chance, but hardly
        (1510, 10_000, 10, False),
        (30, 100, 10, False),
        (590, 1000, 2, True),
        (620, 1000, 2, False),
        (50, 10_000, 1000, False),
    ],
)
def test_near_chance(correct: int, inputs: int, classes: int, raised: bool) -> None:
    clean = tally([1] * correct + [0] * (inputs - correct), 1)
    flags = {flag.id for flag in check(clean=clean, classes=classes)}
    assert (NEAR_CHANCE in flags) is raised


def rates(mean: float, spread: float = 0.0) -> Tally[Evaluate]:
    """100 inputs whose fractions of correct draws alternate around a mean."""
    return tally(np.round(100 * (mean + spread * (-1.0) ** np.arange(INPUTS))))


@pytest.mark.parametrize("name", ["gaussian", "uniform", "laplace"])
def test_nppr_above_pr(name: str) -> None:
    worst, noise = learned(), source(name)
    (flag,) = check({worst: rates(0.8), noise: rates(0.7)}, [entry()])
    assert (flag.id, flag.source) == (NPPR_ABOVE_PR, "nppr")
    assert flag.message.startswith(f"10.0 percentage points above the PR of {name}")
    assert check({worst: rates(0.7), noise: rates(0.7)}, [entry()]) == []
    assert check({worst: rates(0.6), noise: rates(0.7)}, [entry()]) == []
    # Standard error 0.302 / 10: five points are 1.66 of them, four 1.33.
    assert check({worst: rates(0.55, 0.3), noise: rates(0.5)}, [entry()])
    assert check({worst: rates(0.54, 0.3), noise: rates(0.5)}, [entry()]) == []
    assert check({learned(0.5): rates(0.8), noise: rates(0.7)}, [entry(0.5)]) == []
    assert check({worst: rates(0.8), source(f"{name}:scale=2"): rates(0.7)}, [entry()]) == []
    elsewhere = source(name, Budget.linf(0.2))
    assert check({worst: rates(0.8), elsewhere: rates(0.7)}, [entry()]) == []


def test_only_clean_correct_inputs_are_compared() -> None:
    clean = np.arange(INPUTS) < 50
    high = tally(np.where(clean, 50, 100), clean=clean)
    low = tally(np.where(clean, 60, 0), clean=clean)
    assert check({learned(): high, source("uniform"): low}, [entry()]) == []


def test_nppr_above_a_larger_floor() -> None:
    free, bound = learned(), learned(0.5)
    entries = [entry(), entry(0.5)]
    above = {free: rates(0.8), bound: rates(0.7)}
    assert named(check(above, entries)) == [(NPPR_ABOVE_PARENT, "nppr")]
    assert check({free: rates(0.7), bound: rates(0.8)}, entries) == []
    assert check({free: rates(0.54, 0.3), bound: rates(0.5)}, entries) == []
    # Of another family, or not measured:
    assert check(above, [entry(), entry(0.5, components=3)]) == []
    assert check({free: rates(0.8)}, entries) == []


def test_repeated_searches_are_compared_with_but_not_flagged() -> None:
    free, other, noise = learned(), learned(0.0, 1), source("uniform")
    entries = [entry(), entry(0.0, 1)]
    assert check({free: rates(0.6), other: rates(0.9), noise: rates(0.7)}, entries) == []
    above = {free: rates(0.6), other: rates(0.9), learned(0.5, 1): rates(0.5)}
    assert named(check(above, [*entries, entry(0.5, 1)])) == [(NPPR_ABOVE_PARENT, "nppr")]


CELLS = {
    (rung, structure): learned(0.0, None, rung, structure, f"{rung}-{structure}")
    for rung in (Dependency.INDEPENDENT, Dependency.LABEL)
    for structure in (WHITE, STATIONARY, ANY)
}


@pytest.mark.parametrize("inner", CELLS)
@pytest.mark.parametrize("outer", CELLS)
def test_a_cell_above_a_cell_inside_it_is_flagged(
    inner: tuple[Dependency, str], outer: tuple[Dependency, str]
) -> None:
    order = [WHITE, STATIONARY, ANY]
    deeper = outer[0].depth >= inner[0].depth
    nested = deeper and order.index(outer[1]) >= order.index(inner[1]) and inner != outer
    found = check({CELLS[inner]: rates(0.5), CELLS[outer]: rates(0.6)})
    expected = [(NPPR_ABOVE_PARENT, CELLS[outer].name)] if nested else []
    assert named(found) == expected
    words = f"10.0 percentage points above {CELLS[inner].name} on the evaluate split"
    assert [words in flag.message for flag in found] == [True] * len(expected)
    # Ties and differences within chance are fine.
    assert check({CELLS[inner]: rates(0.5), CELLS[outer]: rates(0.5)}) == []
    assert check({CELLS[inner]: rates(0.5), CELLS[outer]: rates(0.52, 0.3)}) == []


def test_what_learned_noise_looks_like() -> None:
    assert check(distributions=[entry(max_weight=0.99, realised_std=0.1)]) == []
    found = check(distributions=[entry(max_weight=0.995, realised_std=0.09)])
    assert named(found) == [(ONE_COMPONENT, "nppr"), (NEARLY_DETERMINISTIC, "nppr")]
    assert check(distributions=[entry(max_weight=1.0, components=1)]) == []
    assert check(distributions=[entry(max_weight=1.0, per_class=True)]) == []
