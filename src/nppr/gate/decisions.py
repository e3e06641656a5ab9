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
from nppr.gate.policy import Kind, Requirement
from nppr.gate.sequential_draws import (
    MORE_INPUTS,
    Drawing,
    LevelQuestion,
    Question,
    Reading,
    draw_until_decided,
)
from nppr.models import PreparedClassifier
from nppr.report.gate_record import Decision
from nppr.report.model import Flag
from nppr.report.printed_numbers import percent
from nppr.sources import Source
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest
from nppr.statistics.noise_sets import NoiseSet
from nppr.statistics.sequential import BernoulliTest, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class GateTest:
    """A requirement that draws decide, with its source and its question."""

    requirement: Requirement
    claim: Claim
    source: Source
    question: Question
    draws: int = 1

    @property
    def drawn(self) -> tuple[str, int, Claim]:
        """The key of its draws: tests with the same key share them."""
        return self.source.name, self.draws, self.claim

    def decide(self, outcome: Drawing | str, flags: Sequence[Flag], confidence: float) -> Decision:
        """Return the verdict in words, with its numbers; `confidence` is that of all verdicts.

        `outcome` is the drawing, or why there is none.
        """
        asked, source = self.requirement, self.source
        unmeasured = leave_undecided(asked, self.claim, str(outcome), source.name)
        if isinstance(outcome, str):
            return unmeasured
        verdict, found, why = self.question.verdict, self.question.read(), outcome.why
        doubts = self._doubts(flags) if verdict is Verdict.HOLDS else []
        if verdict is Verdict.UNDECIDED and outcome.advice:
            only_inputs = asked.always_population and outcome.advice == MORE_INPUTS
            why += f". {'To decide it, provide more inputs.' if only_inputs else outcome.advice}"
        if doubts:
            verdict, why = Verdict.UNDECIDED, f"flagged: {', '.join(doubts)}"
        scope = f"{100 * confidence:g} % confidence, {self.claim.value}"
        return unmeasured.model_copy(
            update={
                "verdict": verdict,
                "statement": state_verdict(
                    asked, source, verdict, found, scope, doubted=bool(doubts)
                ),
                "why": why,
                "inputs": outcome.inputs,
                "value": found.value,
                "low": found.interval.low,
                "high": found.interval.high,
                "draws": found.draws,
                "slices": found.slices,
            }
        )

    def _doubts(self, flags: Sequence[Flag]) -> list[str]:
        """Return the flags for which "holds" would be false comfort: the number may be too high."""
        asked = self.requirement
        if asked.kind is Kind.PAIRED:
            return []
        doubting = doubting_flags(flags, (self.source.name,), asked.metric, asked.direction)
        return list(dict.fromkeys(flag.id for flag in doubting))


def leave_undecided(
    asked: Requirement, claim: Claim, why: str, source: str | None = None
) -> Decision:
    """Return the decision about a requirement that could not be measured."""
    return Decision(
        requirement=asked.text,
        verdict=Verdict.UNDECIDED,
        statement="undecided: it could not be measured",
        why=why,
        at_least=asked.at_least,
        metric=Metric.BOUND if asked.noise_set else asked.metric,
        direction=asked.direction,
        claim=claim,
        source=source,
    )


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
    if source.fixed_draws is not None or not source.metric.is_drawn:
        raise SpecError(
            f"`source` must be noise if a set of noise around it is given, got {source.name!r}."
        )
    test = NoiseSetTest(asked.noise_set, asked.at_least, 1 - error, seed)
    return GateTest(asked, claim, source, LevelQuestion(test, rows), SET_DRAWS)


def decide_tests(
    tests: Sequence[GateTest],
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    *,
    flags: Sequence[Flag],
    confidence: float,
    calls: int,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[list[Decision], int]:
    """Draw for all tests, once for those about the same draws; return decisions and calls used.

    `flags` describe the classifier and its noise. A source that fails leaves its requirements
    undecided, and the others are decided.
    """
    groups: dict[tuple[str, int, Claim], list[GateTest]] = {}
    for test in tests:
        groups.setdefault(test.drawn, []).append(test)
    outcomes: dict[tuple[str, int, Claim], Drawing | str] = {}
    used = 0
    for drawn, group in groups.items():
        source = group[0].source
        try:
            drawing = draw_until_decided(
                source, classifier, split, [each.question for each in group],
                about=group[0].claim, calls=calls, draws=group[0].draws, seed=seed,
                progress=progress,
            )  # fmt: skip
        except InputError:
            raise
        except Exception as error:
            logger.debug("%s failed", source.name, exc_info=error)
            outcomes[drawn] = " ".join(str(error).split()) or type(error).__name__
        else:
            used += drawing.calls
            outcomes[drawn] = drawing
    return [each.decide(outcomes[each.drawn], flags, confidence) for each in tests], used


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
    (decision, *slices), used = decide_tests(
        tests, classifier, split,
        flags=flags, confidence=confidence, calls=calls, seed=seed, progress=progress,
    )  # fmt: skip
    return decision.model_copy(update={"slices": tuple(slices)}), used


def require_decidable(source: Source) -> None:
    """Raise `SpecError` unless the answers under a source are correct or wrong, without a fit."""
    if not source.metric.is_of_clean_correct:
        raise SpecError(
            f"`source` must be noise, an attack or a corruption, whose answers are correct or wrong,"
            f" got {source.name!r}."
        )
    if source.needs_fit_split:
        raise SpecError(
            f"`source` must not be {source.kind}, which is fitted on other inputs first:"
            " measure it with nppr assess."
        )


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
        clean = asked.metric is Metric.ACCURACY
        counted = "inputs" if clean else "inputs that are clean-correct for both"
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
