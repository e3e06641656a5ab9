"""Verdicts on classifiers whose robustness is known, and what a decision counts and says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nppr
from helpers import Linear, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Claim, Evaluate, FrozenModel, Metric, Progress
from nppr.data import Split, from_arrays
from nppr.doctor.flags import (
    ATTACK_TOO_WEAK,
    FEW_DRAWS,
    NEARLY_DETERMINISTIC,
    NPPR_ABOVE_PR,
    flag,
)
from nppr.errors import SpecError
from nppr.gate.decisions import decide_source, state_verdict
from nppr.gate.policy import Kind, Requirement
from nppr.gate.sequential_draws import (
    AT_ONCE,
    DrawnBlock,
    LevelQuestion,
    Reading,
    draw_until_decided,
)
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.report.gate_record import Decision
from nppr.report.model import Flag
from nppr.search.search_settings import default_settings
from nppr.sources import JPEG, PGD, Bound, Clean, Source, Stress, Uniform, Universal
from nppr.sources.custom import CustomNoise
from nppr.statistics.intervals import Interval
from nppr.statistics.noise_sets import ChiSquare, Contaminated, KullbackLeibler, NoiseSet
from nppr.statistics.sequential import BernoulliTest, Verdict, one_sided_bound

BUDGET = Budget.linf(0.5)
BRIGHT, DARK = 0.75, 0.25
"""One pixel above 1/2 is class 0; half a unit less or more turns the answer."""


def ready(micro_batch: int = 64) -> PreparedClassifier:
    classifier = Classifier(Linear(torch.ones(1, 1, 1), -0.5))
    return prepare(classifier, torch.rand(8, 1, 1, 1), classes=2, micro_batch=micro_batch)


def pixels(bright: int, dark: int = 0, wrong: int = 0) -> Split[Evaluate]:
    """Inputs of class 0, of class 1, and of class 1 with the pixel of class 0."""
    values = [BRIGHT] * bright + [DARK] * dark + [BRIGHT] * wrong
    labels = [0] * bright + [1] * (dark + wrong)
    return evaluate_part(torch.tensor(values).view(-1, 1, 1, 1), labels)


@dataclass
class Flaky(Source):
    """Turns the answer of every draw with a known probability, for each class its own."""

    wrong: tuple[float, float] = (0.1, 0.1)
    budget: Budget | None = BUDGET
    met: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "flaky"

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        self.met += [(draws.seed, index) for index in draws.indices]
        chance = torch.tensor(self.wrong)[y].view(-1, 1, 1, 1, 1)
        turned = draws.uniform("flaky", tuple(x.shape[1:])) < chance
        return turned * torch.where(x > 0.5, -0.5, 0.5).unsqueeze(1)


def settled(source: Source, part: Split[Evaluate], at_least: float = 0.9, **more: Any) -> Decision:
    return counted(source, part, at_least, **more)[0]


def counted(
    source: Source, part: Split[Evaluate], at_least: float = 0.9, **more: Any
) -> tuple[Decision, int]:
    """The decision and the calls it took."""
    return decide_source(source, ready(), part, at_least, **{"seed": 1, **more})


def correct(found: Decision) -> int:
    """The correct draws of a decision on a level."""
    assert found.value is not None
    return round(found.value * found.draws)


@pytest.mark.parametrize("claim", list(Claim))
@pytest.mark.parametrize(
    ("wrong", "verdict"), [(0.01, Verdict.HOLDS), (0.3, Verdict.VIOLATED), (0.1, Verdict.UNDECIDED)]
)
def test_known_robustness_gets_its_verdict(claim: Claim, wrong: float, verdict: Verdict) -> None:
    found = settled(Flaky((wrong, wrong)), pixels(500, 500), claim=claim, calls=3000)
    assert found.verdict is verdict
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 1 - wrong <= found.high
    assert found.statement.startswith(f"{verdict}: ")
    assert (found.why == "the evidence is sufficient") == (verdict is not Verdict.UNDECIDED)
    assert (found.source, found.metric, found.claim) == ("flaky", Metric.PR, claim)
    assert (found.requirement, found.at_least) == ("flaky >= 0.9", 0.9)


def test_noise_of_ones_own_gets_a_verdict() -> None:
    """Half of the draws are moved across the edge."""

    def coin(x: Tensor, y: Tensor, draws: int) -> Tensor:  # noqa: ARG001
        return x[:, None] - 0.5 * (torch.rand(1, draws, 1, 1, 1) < 0.5)

    assert settled(CustomNoise(BUDGET, coin), pixels(100), 0.3).verdict is Verdict.HOLDS
    assert settled(CustomNoise(BUDGET, coin), pixels(100), 0.7).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("claim", list(Claim))
def test_counts_are_those_of_the_draws(claim: Claim) -> None:
    source, part = Flaky(), pixels(150, 150, wrong=20)
    found = settled(source, part, claim=claim, calls=1500)
    assert found.draws == len(source.met)
    assert found.inputs == len({index for _, index in source.met})
    counts = correct(found), found.draws - correct(found)
    assert found.low == one_sided_bound(*counts, 0.95, above=True)
    assert found.high == one_sided_bound(*counts, 0.95, above=False)
    assert found.low < counts[0] / found.draws < found.high


def test_calls_are_one_without_noise_and_one_for_each_draw() -> None:
    everything, calls = counted(Flaky(), pixels(150, 150, wrong=20))
    assert (everything.draws, everything.inputs, calls) == (300, 300, 320 + 300)
    again, calls = counted(Flaky(), pixels(150, 150, wrong=20), claim=Claim.TEST_SET, calls=1000)
    assert again.inputs <= calls - again.draws <= 320  # each is looked at once, when drawn
    assert again.inputs <= 300


def test_a_verdict_comes_at_the_first_block_that_allows_it() -> None:
    """No failure: after 64 draws against 90 %, after as many blocks as it takes against 99 %."""
    for at_least in (0.9, 0.99):
        test, blocks = BernoulliTest(at_least, 0.95), 0
        while test.verdict is Verdict.UNDECIDED:
            test.update(AT_ONCE, AT_ONCE)
            blocks += 1
        found, calls = counted(Flaky((0, 0)), pixels(1000), at_least)
        assert (correct(found), found.draws) == (blocks * AT_ONCE, blocks * AT_ONCE)
        assert calls == 2 * found.draws


def test_about_the_population_every_input_is_met_once() -> None:
    source = Flaky()
    found = settled(source, pixels(130, 70), calls=10**6)
    assert max(Counter(index for _, index in source.met).values()) == 1
    assert len(source.met) == found.inputs == found.draws == 200
    assert found.verdict is Verdict.UNDECIDED
    assert found.why.startswith("every input was used once. ")


def test_about_the_test_set_an_input_gets_fresh_draws() -> None:
    """Three inputs, many draws: no two visits of an input share their random numbers."""
    source = Flaky()
    found, calls = counted(source, pixels(2, 1), claim=Claim.TEST_SET, calls=500)
    assert found.inputs == 3
    assert found.draws == len(source.met) > 400
    assert len(set(source.met)) == len(source.met)
    visits = Counter(index for _, index in source.met)
    assert min(visits.values()) > 0.8 * found.draws / 3
    assert found.why == f"{calls:,} calls were used. To decide it, raise `calls`."


def test_about_the_test_set_inputs_are_drawn_with_replacement() -> None:
    """Of 64 draws from 64 inputs a share of about 1/e is not met."""
    shares = []
    for seed in range(20):
        source = Flaky()
        settled(source, pixels(64), claim=Claim.TEST_SET, calls=128, seed=seed)
        shares.append(len({index for _, index in source.met[:64]}) / 64)
    assert np.mean(shares) == pytest.approx(1 - math.exp(-1), abs=0.03)


@pytest.mark.parametrize("claim", list(Claim))
def test_only_clean_correct_inputs_count(claim: Claim) -> None:
    """Misclassified ones would fail the claim under this noise."""
    source = Flaky((0.0, 1.0))
    part = pixels(100, wrong=100)
    found = settled(source, part, claim=claim, calls=1000)
    assert found.verdict is Verdict.HOLDS
    assert {index for _, index in source.met} <= set(range(100))
    assert correct(found) == found.draws


@pytest.mark.parametrize("claim", list(Claim))
def test_without_a_clean_correct_input_nothing_is_shown(claim: Claim) -> None:
    found = settled(Flaky(), pixels(0, wrong=10), claim=claim)
    assert found.verdict is Verdict.UNDECIDED
    assert (found.value, found.draws, found.inputs) == (None, 0, 0)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize("claim", list(Claim))
def test_clean_calls_count_even_if_no_input_is_correct(claim: Claim) -> None:
    assert counted(Flaky(), pixels(0, wrong=10), claim=claim)[1] == 10


def test_every_class_gets_a_verdict() -> None:
    source = Flaky((0.01, 0.3))
    found = settled(source, pixels(600, 600), class_names=("bright", "dark"))
    assert [each.requirement for each in found.slices] == ["bright", "dark"]
    assert [each.verdict for each in found.slices] == [Verdict.HOLDS, Verdict.VIOLATED]
    assert sum(each.draws for each in found.slices) == found.draws
    assert sum(map(correct, found.slices)) == correct(found)
    assert found.why == "the evidence is sufficient"


def test_verdicts_on_classes_share_the_error() -> None:
    """Without failures, one class needs the draws of an error of 0.05 / 2."""
    alone, shared = (BernoulliTest(0.9, confidence) for confidence in (0.95, 0.975))
    needed = []
    for test in (alone, shared):
        while test.verdict is Verdict.UNDECIDED:
            test.update(1, 1)
        needed.append(test.draws)
    assert needed[0] < needed[1]
    for draws in (needed[0], needed[1]):
        found = settled(Flaky((0, 0)), pixels(draws, 300), class_names=("bright", "dark"))
        bright, dark = found.slices
        assert dark.verdict is found.verdict is Verdict.HOLDS
        assert bright.draws == draws
        assert (bright.verdict is Verdict.HOLDS) == (draws >= needed[1])


def test_a_verdict_waits_for_the_classes() -> None:
    source = Flaky((0.0, 0.1))
    plain = settled(source, pixels(900, 100))
    assert plain.verdict is Verdict.HOLDS
    found = settled(source, pixels(900, 100), class_names=("bright", "dark"))
    assert found.verdict is Verdict.HOLDS
    assert found.draws == 1000 > plain.draws
    assert found.slices[1].verdict is Verdict.UNDECIDED
    assert found.why == "every input was used once"


@pytest.mark.parametrize("claim", list(Claim))
def test_the_micro_batch_does_not_matter_and_the_seed_does(claim: Claim) -> None:
    data = two_class_data(300)

    def found(micro_batch: int, seed: int) -> tuple[Decision, int]:
        model = prepare(
            Classifier(half_classifier()),
            torch.rand(8, 1, 4, 4),
            classes=2,
            micro_batch=micro_batch,
        )
        source = Uniform(Budget.linf(0.3))
        return decide_source(
            source,
            model,
            data.evaluate,
            0.85,
            claim=claim,
            seed=seed,
            calls=600,
            class_names=data.class_names,
        )

    first = found(1, 0)
    assert 0 < correct(first[0]) < first[0].draws
    assert first == found(7, 0) == found(64, 0)
    assert correct(first[0]) != correct(found(64, 1)[0])


@pytest.mark.parametrize("calls", [1, 100, 129, 400])
def test_calls_are_kept_up_to_a_block(calls: int) -> None:
    found, used = counted(Flaky(), pixels(1000), calls=calls)
    assert calls <= used < calls + 2 * AT_ONCE
    assert found.why.startswith(f"{used:,} calls were used")


@pytest.mark.parametrize("calls", [1, 100, 400])
def test_calls_are_kept_up_to_a_block_about_the_test_set(calls: int) -> None:
    """However many inputs it has."""
    _, used = counted(Flaky(), pixels(300), claim=Claim.TEST_SET, calls=calls)
    assert calls <= used < calls + 2 * AT_ONCE


def test_attacks_and_corruptions_get_verdicts_too() -> None:
    attack, calls = counted(PGD(BUDGET, steps=10), pixels(100, 100))
    assert (attack.verdict, attack.metric, attack.value) == (Verdict.VIOLATED, Metric.AR, 0)
    assert calls > 2 * attack.draws
    small = settled(PGD(Budget.linf(0.1), steps=2), pixels(100, 100))
    assert small.verdict is Verdict.HOLDS
    images = evaluate_part(torch.full((100, 1, 8, 8), 0.9), [0] * 100)
    model = prepare(
        Classifier(Linear(torch.ones(1, 8, 8), -32)), images.batch(np.arange(8))[0], classes=2
    )
    assert decide_source(JPEG(severity=1), model, images, 0.9)[0].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_learned_noise_gets_a_verdict() -> None:
    search = default_settings(Family(Dependency.LABEL), calls=512, inputs=32).without_positions()
    images = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = (images[..., :2].sum((1, 2, 3)) <= images[..., 2:].sum((1, 2, 3))).long()
    data = from_arrays(images, labels, shares=(0.3, 0.2))
    *_, learned = nppr.learn(half_classifier(), data, budget=Budget.linf(0.02), search=search)
    model = prepare(Classifier(half_classifier()), images[:8], classes=2)
    found, _ = decide_source(learned.source, model, data.evaluate, 0.5)
    assert (found.source, found.metric) == ("nppr:label", Metric.NPPR)
    assert found.verdict is Verdict.HOLDS
    assert found.statement.startswith("holds: under the worst distribution found")


@pytest.mark.parametrize("wrong", [0.0, 0.01, 0.05, 0.1, 0.15, 0.3])
def test_the_bound_of_a_verdict_is_the_one_that_decided(wrong: float) -> None:
    found = settled(Flaky((wrong, wrong)), pixels(500, 500), calls=3000)
    assert found.low is not None
    assert found.high is not None
    assert (found.low >= 0.9) == (found.verdict is Verdict.HOLDS)
    assert (found.high <= 0.9) == (found.verdict is Verdict.VIOLATED)


def test_draws_for_the_classes_take_nothing_from_the_bound() -> None:
    found = settled(Flaky((0.0, 0.4)), pixels(64, 300), 0.5, class_names=("bright", "dark"))
    assert found.verdict is Verdict.HOLDS
    assert found.low is not None
    assert found.low >= 0.5


@dataclass
class Found(Flaky):
    """As if a search had found it."""

    metric = Metric.NPPR


def warned(name: str = NPPR_ABOVE_PR, source: str = "flaky") -> Flag:
    return flag(name, "3.0 percentage points above the PR of uniform", source)


def test_a_flagged_search_decides_nothing_but_violations() -> None:
    names = ("bright", "dark")
    part = pixels(300, 300)
    doubted = settled(Found((0.0, 0.0)), part, flags=[warned()], class_names=names)
    assert doubted.verdict is Verdict.UNDECIDED
    assert {each.verdict for each in doubted.slices} == {Verdict.UNDECIDED}
    assert doubted.statement.startswith(
        "undecided: under the worst distribution found at least 90 %"
    )
    assert "but flags make that unreliable" in doubted.statement
    assert doubted.why == "flagged: nppr-above-pr"
    assert settled(Found((0.0, 0.0)), part).verdict is Verdict.HOLDS
    violated = settled(Found((0.5, 0.5)), part, flags=[warned()])
    assert (violated.verdict, violated.why) == (Verdict.VIOLATED, "the evidence is sufficient")


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (Found, [warned(source="nppr:floor=0.5")]),  # of other noise
        (Found, [warned(ATTACK_TOO_WEAK)]),  # the fault of an attack
        (Found, [warned(NEARLY_DETERMINISTIC), warned(FEW_DRAWS)]),  # no warnings
        (Flaky, [warned(source="nppr:label")]),  # nothing was searched for
    ],
)
def test_other_flags_leave_the_verdict_alone(source: type[Flaky], flags: list[Flag]) -> None:
    assert settled(source((0.0, 0.0)), pixels(300), flags=flags).verdict is Verdict.HOLDS


SURE = "(95 % confidence, the population, clean-correct inputs)"
WORSE = "; worse noise may exist in the admissible set"
WORSE_ATTACK = "; worse perturbations may exist in the budget"


def stated(source: Source, verdict: Verdict, at_least: float = 0.9) -> str:
    asked = Requirement("", Kind.LEVEL, at_least, source.metric, source.name)
    nothing = Reading(None, Interval(0, 1), 0)
    return state_verdict(asked, source, verdict, nothing, "95 % confidence, the population")


@pytest.mark.parametrize(
    ("source", "found", "kind", "worse"),
    [
        (Found(), "the worst distribution found", "noise", WORSE),
        (PGD(BUDGET), "this attack", "perturbation", WORSE_ATTACK),
    ],
)
def test_a_search_shows_violations_by_the_worst_noise_only(
    source: Source, found: str, kind: str, worse: str
) -> None:
    assert stated(source, Verdict.VIOLATED) == (
        f"violated: under the worst admissible {kind} fewer than 90 % of the answers are correct"
        f" {SURE} [{source.name}]"
    )
    assert stated(source, Verdict.HOLDS) == (
        f"holds: under {found} at least 90 % of the answers are correct {SURE}{worse}"
        f" [{source.name}]"
    )


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (Flaky(), "this noise"),
        (Uniform(Budget.box("brightness=0.2")), "this law"),
        (JPEG(), "this corruption"),
    ],
)
def test_known_noise_is_named_in_the_statement(source: Source, named: str) -> None:
    assert {each: stated(source, each, 0.995) for each in Verdict} == {
        Verdict.HOLDS: f"holds: under {named} at least 99.5 % of the answers are correct {SURE}"
        f" [{source.name}]",
        Verdict.VIOLATED: f"violated: under {named} fewer than 99.5 % of the answers are correct"
        f" {SURE} [{source.name}]",
        Verdict.UNDECIDED: f"undecided: it is not shown whether at least 99.5 % are correct {SURE}"
        f" [{source.name}]",
    }


def test_a_statement_names_its_confidence_and_what_it_applies_to() -> None:
    found = settled(Flaky((0, 0)), pixels(200), confidence=0.999, claim=Claim.TEST_SET)
    assert "(99.9 % confidence, this test set," in found.statement


def test_progress_ends_at_the_calls() -> None:
    seen: list[Progress] = []
    settled(Flaky(), pixels(300), calls=300, progress=seen.append)
    assert [each.done for each in seen] == [64, 128, 192]
    assert [each.total - each.done for each in seen] == [172, 44, 0]
    assert {each.source for each in seen} == {"flaky"}


def test_progress_counts_correct_answers() -> None:
    """All of them, where nothing is ever wrong."""
    seen: list[Progress] = []
    settled(Flaky((0, 0)), pixels(300), 0.99, progress=seen.append)
    assert seen
    assert [each for each in seen if each.correct != each.done] == []


@pytest.mark.slow
def test_drawing_with_replacement_makes_no_false_verdicts() -> None:
    """8 of 40 inputs always fail, the others never: all chance is in which inputs are drawn."""
    verdicts = [
        settled(Flaky((0.0, 1.0)), pixels(32, 8), 0.8, claim=Claim.TEST_SET, calls=400,
                confidence=0.8, seed=seed).verdict
        for seed in range(50)
    ]  # fmt: skip
    assert np.mean([each is Verdict.VIOLATED for each in verdicts]) <= 0.2 + 3 * math.sqrt(
        0.16 / 50
    )
    assert np.mean([each is Verdict.HOLDS for each in verdicts]) <= 0.2 + 3 * math.sqrt(0.16 / 50)


@pytest.mark.parametrize("source", [Stress(BUDGET), Bound(BUDGET), Clean()])
def test_sources_without_correct_or_wrong_answers_are_refused(source: Source) -> None:
    with pytest.raises(SpecError, match=f"`source` must be noise, .* got '{source.name}'"):
        settled(source, pixels(10))


def test_a_universal_perturbation_is_refused() -> None:
    with pytest.raises(SpecError, match="`source` must not be universal"):
        settled(Universal(BUDGET), pixels(10))


@pytest.mark.parametrize("at_least", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_limit_lies_inside_0_and_1(at_least: float) -> None:
    with pytest.raises(SpecError, match="`at_least` must lie in"):
        settled(Flaky(), pixels(10), at_least)


def test_bad_calls_and_confidence_are_named() -> None:
    for calls in (0, -1):
        with pytest.raises(SpecError, match="`calls` must be a whole number >= 1"):
            settled(Flaky(), pixels(10), calls=calls)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(SpecError, match="`confidence` must lie in"):
            settled(Flaky(), pixels(10), confidence=confidence)


@pytest.mark.parametrize(
    ("wrong", "noise", "verdict"),
    [
        (0.01, Contaminated(2.0, kind="ratio"), Verdict.HOLDS),  # 1 - 2 p = 0.98
        (0.01, Contaminated(1.0, 0.05, "tv"), Verdict.HOLDS),  # 0.94
        (0.3, Contaminated(2.0, kind="ratio"), Verdict.VIOLATED),  # at least p fail in any case
        (0.3, Contaminated(1.0, 0.05, "tv"), Verdict.VIOLATED),
        (0.08, Contaminated(2.0, kind="ratio"), Verdict.VIOLATED),  # 1 - h(p) = 0.84, 1 - p = 0.92
        (0.05, Contaminated(2.0, kind="ratio"), Verdict.UNDECIDED),  # 0.9
    ],
)
def test_a_set_of_noise_gets_a_verdict(wrong: float, noise: NoiseSet, verdict: Verdict) -> None:
    found = settled(Flaky((wrong, wrong)), pixels(1000), noise_set=noise)
    assert found.verdict is verdict
    assert noise.words("flaky noise") in found.statement
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 1 - float(noise.h(np.array(wrong))) <= found.high
    assert (found.low >= 0.9) == (verdict is Verdict.HOLDS)
    assert (found.high <= 0.9) == (verdict is Verdict.VIOLATED)


@pytest.mark.slow
@pytest.mark.parametrize("claim", list(Claim))
@pytest.mark.parametrize(
    ("noise", "held"),
    [
        (ChiSquare(1.0), 0.94),  # h of the mean p leaves 0.891 of a true 0.99
        (KullbackLeibler(0.5), 0.85),  # 0.778
        (Contaminated(10.0, kind="ratio"), 0.96),  # 0.9
    ],
)
def test_inputs_that_always_fail_cost_no_more_than_themselves(
    noise: NoiseSet, held: float, claim: Claim
) -> None:
    """One input in 100 always fails: the worst noise leaves 99 % correct, whatever the set."""
    found = settled(Flaky((0.0, 1.0)), pixels(990, 10), held, claim=claim, noise_set=noise)
    assert found.verdict is Verdict.HOLDS
    assert found.low is not None
    assert found.high is not None
    assert held - 1e-9 <= found.low <= 0.99 <= found.high


@pytest.mark.slow
def test_what_the_mean_failure_cannot_refute_is_violated() -> None:
    """Every input fails in 10 % of the draws: of a true 60 % the mean alone leaves 90 % possible."""
    found = settled(Flaky((0.1, 0.1)), pixels(1000), 0.75, noise_set=ChiSquare(1.0))
    assert found.verdict is Verdict.VIOLATED
    assert found.high is not None
    assert 0.6 <= found.high <= 0.75


def test_a_block_is_looked_at_as_a_whole() -> None:
    """Three inputs are drawn 64 times with replacement: many visits of each, one look."""
    looks: list[int] = []

    class Look(LevelQuestion):
        def update(self, block: DrawnBlock) -> None:
            looks.append(len(block.positions))

    look = Look(BernoulliTest(0.9, 0.95))
    draw_until_decided(
        Flaky(),
        ready(),
        pixels(2, 1),
        [look],
        about=Claim.TEST_SET,
        calls=150,
        seed=1,
    )
    assert looks == [AT_ONCE] * 3


def test_what_is_undecided_says_what_to_do() -> None:
    advice = settled(Flaky(), pixels(130, 70)).why
    assert "provide more inputs" in advice
    assert 'set `about` to "test-set"' in advice
    assert settled(Flaky(), pixels(500), calls=100).why.endswith("To decide it, raise `calls`.")
    assert settled(Flaky((0, 0)), pixels(300)).why == "the evidence is sufficient"


def test_a_level_that_a_set_cannot_reach_is_refused() -> None:
    with pytest.raises(SpecError, match=r"`at-least` must be below 0\.8 for noise that differs"):
        settled(Uniform(BUDGET), pixels(10), noise_set=Contaminated(1, 0.2, "tv"))
    with pytest.raises(SpecError, match="`source` must be noise if a set"):
        settled(PGD(BUDGET), pixels(10), noise_set=Contaminated(2))
