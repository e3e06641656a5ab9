"""Test requirements with draws, and decide them.

Tests about the same draws share them. Each test may stop at any block, and each wrong verdict has
probability at most the error of its test, however often it looked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nppr.core.nouns import NOISE
from nppr.core.tally import BoolArray, Claim, Direction, Evaluate, Metric, Progress
from nppr.data import CLASS, Split
from nppr.errors import InputError, SpecError
from nppr.export.claims import doubting_flags
from nppr.gate.gate_questions import BoundQuestion, GateQuestion, LevelQuestion, Reading
from nppr.gate.policy import Kind, Requirement
from nppr.gate.sequential_draws import MORE_INPUTS, Drawing, draw_until_decided
from nppr.models import PreparedClassifier
from nppr.report.gate_record import Decision
from nppr.report.model import Flag
from nppr.report.printed_numbers import percent
from nppr.sources import Source
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest, require_reachable
from nppr.statistics.noise_sets import NoiseSet
from nppr.statistics.sequential import BernoulliTest, Verdict

logger = logging.getLogger(__name__)

DECIDABLE = (Metric.PR, Metric.NPPR, Metric.AR, Metric.CORRUPTION)
"""What sources measure whose answers are correct or wrong."""


@dataclass(eq=False)
class GateTest:
    """A requirement that draws decide, with its source and its question.

    `problem` states why it could not be measured. `doubts` are the flags that keep it from holding.
    """

    requirement: Requirement
    claim: Claim
    source: Source | None = None
    question: GateQuestion | None = None
    draws: int = 1
    doubts: tuple[str, ...] = ()
    problem: str = ""
    drawing: Drawing | None = None

    def add_doubts(self, flags: Sequence[Flag]) -> None:
        """Add the flags for which "holds" would be false comfort: the number may be too high."""
        asked = self.requirement
        if self.source is not None and asked.kind is not Kind.PAIRED:
            names = (self.source.name,)
            doubting = doubting_flags(flags, names, asked.metric, asked.direction)
            self.doubts = tuple(dict.fromkeys(flag.id for flag in doubting))

    def decide(self, confidence: float) -> Decision:
        """Return the verdict in words, with its numbers; `confidence` is that of all verdicts."""
        asked, source = self.requirement, self.source
        decision = Decision(
            requirement=asked.text,
            verdict=Verdict.UNDECIDED,
            statement="undecided: it could not be measured",
            why=self.problem,
            at_least=asked.at_least,
            metric=Metric.BOUND if asked.noise_set else asked.metric,
            direction=asked.direction,
            claim=self.claim,
            source=source.name if source else None,
        )
        if self.problem or source is None or self.question is None or self.drawing is None:
            return decision
        reached, found = self.question.verdict, self.question.read()
        doubted = bool(self.doubts) and reached is Verdict.HOLDS
        verdict = Verdict.UNDECIDED if doubted else reached
        why = f"flagged: {', '.join(self.doubts)}" if doubted else self.drawing.why
        if reached is Verdict.UNDECIDED and self.drawing.advice:
            why = f"{why}. {self._advice()}"
        scope = f"{100 * confidence:g} % confidence, {self.claim.value}"
        return decision.model_copy(
            update={
                "verdict": verdict,
                "statement": state_verdict(asked, source, verdict, found, scope, doubted=doubted),
                "why": why,
                "inputs": self.drawing.inputs,
                "value": found.value,
                "low": found.interval.low,
                "high": found.interval.high,
                "draws": found.draws,
                "slices": found.slices,
            }
        )

    def _advice(self) -> str:
        assert self.drawing is not None
        if self.requirement.always_population and self.drawing.advice == MORE_INPUTS:
            return "To decide it, provide more inputs."
        return self.drawing.advice


def plan_test(
    asked: Requirement,
    source: Source,
    error: float,
    claim: Claim,
    *,
    seed: int = 0,
    rows: BoolArray | None = None,
) -> GateTest:
    """Return the test of a level or a bound, each of whose wrong verdicts has at most this error.

    Only inputs at positions where `rows` is true count; None means all.
    """
    if asked.noise_set is None:
        level = LevelQuestion(BernoulliTest(asked.at_least, 1 - error), rows)
        return GateTest(asked, claim, source, level)
    require_noise_of_set(source, asked.noise_set, asked.at_least)
    test = NoiseSetTest(asked.noise_set, asked.at_least, 1 - error, seed)
    return GateTest(asked, claim, source, BoundQuestion(test, rows), SET_DRAWS)


def decide_tests(
    tests: Sequence[GateTest],
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    *,
    confidence: float,
    calls: int,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[list[Decision], int]:
    """Draw for all tests, once for those about the same draws; return decisions and calls used.

    A source that fails leaves its requirements undecided, and the others are decided.
    """
    groups: dict[tuple[str, int, Claim], list[GateTest]] = {}
    for test in tests:
        if test.source is not None:
            groups.setdefault((test.source.name, test.draws, test.claim), []).append(test)
    used = 0
    for (_, draws, claim), group in groups.items():
        source = group[0].source
        assert source is not None
        try:
            drawing = draw_until_decided(
                source,
                classifier,
                split,
                [each.question for each in group if each.question is not None],
                about=claim,
                calls=calls,
                draws=draws,
                seed=seed,
                progress=progress,
            )
        except InputError:
            raise
        except Exception as error:
            logger.debug("%s failed", source.name, exc_info=error)
            for test in group:
                test.problem = " ".join(str(error).split()) or type(error).__name__
            continue
        used += drawing.calls
        for test in group:
            test.drawing = drawing
    return [test.decide(confidence) for test in tests], used


def decide_source(
    source: Source,
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    at_least: float,
    *,
    confidence: float = 0.95,
    claim: Claim = Claim.POPULATION,
    calls: int = 100_000,
    seed: int = 0,
    class_names: Sequence[str] = (),
    flags: Sequence[Flag] = (),
    noise_set: NoiseSet | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Decision, int]:
    """Decide one requirement: on a source, or on all noise of a set around it; return the calls too.

    Each wrong verdict has probability at most `1 - confidence`, and so has each end of its interval of
    missing. With `class_names` every class is decided too, at a confidence at which all of them hold
    together (Bonferroni). They are the slices of the decision. `flags` are those known of the source.
    """
    require_decidable(source)
    what = f"bound {noise_set.label} around {source.name}" if noise_set else source.name
    kind = Kind.BOUND if noise_set else Kind.LEVEL
    asked = Requirement(
        f"{what} >= {at_least:g}", kind, at_least, source.metric, source.name, noise_set=noise_set
    )
    error = 1 - confidence
    tests = [plan_test(asked, source, error, claim, seed=seed)]
    for label, name in enumerate(class_names):
        part, rows = replace(asked, text=name), split.labels == label
        tests.append(plan_test(part, source, error / len(class_names), claim, seed=seed, rows=rows))
    for test in tests:
        test.add_doubts(flags)
    (decision, *slices), used = decide_tests(
        tests, classifier, split,
        confidence=confidence, calls=calls, seed=seed, progress=progress,
    )  # fmt: skip
    return decision.model_copy(update={"slices": tuple(slices)}), used


def require_decidable(source: Source) -> None:
    """Raise `SpecError` unless the answers under a source are correct or wrong, without a fit."""
    if source.metric not in DECIDABLE:
        raise SpecError(
            f"`source` must be noise, an attack or a corruption, whose answers are correct or wrong,"
            f" got {source.name!r}."
        )
    if source.needs_fit_split:
        raise SpecError(
            f"`source` must not be {source.kind}, which is fitted on other inputs first:"
            " measure it with nppr assess."
        )


def require_noise_of_set(source: Source, noise: NoiseSet, at_least: float) -> None:
    """Raise `SpecError` unless a set of noise can lie around the source and reach the value."""
    if source.fixed_draws is not None or not source.metric.is_drawn:
        raise SpecError(
            f"`source` must be noise if a set of noise around it is given, got {source.name!r}."
        )
    require_reachable(noise, at_least)


def state_verdict(
    asked: Requirement,
    source: Source,
    verdict: Verdict,
    found: Reading,
    scope: str,
    *,
    doubted: bool = False,
) -> str:
    """Return a verdict as it may be quoted; `scope` is its confidence and what it applies to.

    `doubted` means that draws showed it to hold, but flags make that unreliable.
    """
    if asked.kind is Kind.PAIRED:
        counted = (
            "inputs"
            if asked.metric is Metric.ACCURACY
            else "inputs that are clean-correct for both"
        )
        named = f" [{source.name}]" if asked.source else ""
        return f"{verdict}: {_difference(asked, verdict)} ({scope}, {counted}){named}"
    level = f"{100 * asked.at_least:g} %"
    if asked.metric is Metric.ACCURACY:
        outcome = {
            Verdict.HOLDS: f"at least {level} of the answers are correct on clean inputs",
            Verdict.VIOLATED: f"fewer than {level} of the answers are correct on clean inputs",
            Verdict.UNDECIDED: f"it is not shown whether at least {level} are correct on clean inputs",
        }[verdict]
        return f"{verdict}: {outcome} ({scope})"
    outcome, remark = _level(asked, source, verdict, level, doubted=doubted)
    said = f"{verdict}: {outcome} ({scope}, clean-correct inputs){remark} [{source.name}]"
    if asked.kind is not Kind.WORST or not found.slices or doubted:
        return said
    worst = found.slices[0]
    seen = "no input" if worst.value is None else f"{percent(worst.value)} %"
    where = "at least one" if verdict is Verdict.VIOLATED else "every"
    column = CLASS if asked.name == CLASS else f"slice of {asked.name}"
    return f"{said}, in {where} {column}; lowest observed: {worst.requirement} ({seen})"


def _difference(asked: Requirement, verdict: Verdict) -> str:
    """Return what a verdict states about the difference from a baseline."""
    loss = f"{100 * abs(asked.at_least):g}"
    points = f"{loss} percentage point{'' if loss == '1' else 's'}"
    return {
        Verdict.HOLDS: f"less than {points} worse than {asked.name}, if at all",
        Verdict.VIOLATED: f"more than {points} worse than {asked.name}",
        Verdict.UNDECIDED: f"it is not shown whether it is {points} worse than {asked.name}",
    }[verdict]


def _level(
    asked: Requirement, source: Source, verdict: Verdict, level: str, *, doubted: bool
) -> tuple[str, str]:
    """Return what a verdict states about a level under a source or a set around it, and a remark.

    Under learned noise or an attack, VIOLATED applies to the worst admissible noise, which can only be
    worse. HOLDS applies only to what was found.
    """
    nouns = NOISE if source.budget is None else source.budget.nouns
    noise = asked.noise_set.words(nouns.refer_to(source.name)) if asked.noise_set else None
    metric, searched = source.metric, asked.direction is Direction.UPPER_BOUND
    found = {Metric.NPPR: "the worst distribution found", Metric.AR: "this attack"}
    fixed = "this corruption" if metric is Metric.CORRUPTION else f"this {nouns.noise}"
    under = f"{nouns.every_noise} {noise}" if noise else found.get(metric, fixed)
    if doubted:
        outcome = f"under {under} at least {level} of the answers are correct"
        return outcome, ", but flags make that unreliable"
    if verdict is Verdict.UNDECIDED:
        scope = f" under {under}" if noise else ""
        return f"it is not shown whether at least {level} are correct{scope}", ""
    if verdict is Verdict.VIOLATED:
        worst = "perturbation" if metric is Metric.AR else nouns.noise
        under = f"the worst admissible {worst}" if searched else fixed
        under = f"the worst {nouns.noise} {noise} (it may see the input)" if noise else under
        return f"under {under} fewer than {level} of the answers are correct", ""
    worse = {
        Metric.NPPR: f"; {nouns.worse_noise} may exist in the admissible set",
        Metric.AR: "; worse perturbations may exist in the budget",
    }
    remark = worse[metric] if searched else ""
    return f"under {under} at least {level} of the answers are correct", remark
