"""A question decided as soon as the evidence allows: is robustness at least a given value?

Draws come in blocks, and after each block an anytime-valid test looks at them. So it may stop at any
block, and each wrong verdict has probability at most 1 - confidence, however often it looked.

the population   every input is used once: independent draws, until inputs run out
this test set    inputs are drawn with replacement, each with fresh draws: as many as wanted

An input has one draw, or 16 where the question is about a set of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from nppr.core.nouns import NOISE, Nouns
from nppr.core.tally import BoolArray, Claim, Evaluate, Metric, Progress
from nppr.data import Split
from nppr.doctor.flags import ATTACK_TOO_WEAK, SEVERITY, Severity
from nppr.errors import SpecError
from nppr.gate.sequential_draws import (
    CALLS,
    CountQuestion,
    SetQuestion,
    draw_until_decided,
)
from nppr.models import PreparedClassifier
from nppr.report.model import Flag
from nppr.report.numbers import percent
from nppr.sources import Source
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest, require_reachable
from nppr.statistics.noise_sets import NoiseSet
from nppr.statistics.sequential import BernoulliTest, Verdict

METRICS = (Metric.PR, Metric.NPPR, Metric.AR, Metric.CORRUPTION)


@dataclass(frozen=True)
class ClassVerdict:
    """The verdict on one class; all verdicts hold together at the stated confidence."""

    label: int
    name: str
    verdict: Verdict
    correct: int
    draws: int


@dataclass(frozen=True)
class Certificate:
    """A verdict with everything needed to quote it.

    `low` is a lower and `high` an upper bound of the probability of a correct answer, each at the
    confidence and at all looks together: the one that decided is on its side of `at_least`. `why`
    states what ended the test, `advice` what to do if that left it undecided, `doubts` why a search is
    not trusted that found no worse noise.
    """

    source: str
    metric: Metric
    at_least: float
    confidence: float
    about: Claim
    verdict: Verdict
    statement: str
    why: str
    correct: int
    draws: int
    low: float
    high: float
    inputs: int
    calls: int
    seed: int
    classes: tuple[ClassVerdict, ...] = ()
    doubts: tuple[str, ...] = ()
    advice: str = ""

    def as_dict(self) -> dict[str, object]:
        """All of it as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The certificate in words, with a line for every class."""
        low = f"at least {percent(self.low, 'at-least')} %"
        high = f"at most {percent(self.high, 'at-most')} %"
        both = f"{low}; {high}, each"
        shown = {Verdict.HOLDS: low, Verdict.VIOLATED: high}.get(self.verdict, both)
        evidence = (
            f"{self.correct:,} of {self.draws:,} draws correct ({shown} with"
            f" {100 * self.confidence:g} % confidence at every look), {self.inputs:,} inputs,"
            f" {self.calls:,} calls: {self.why}"
        )
        classes = (
            f"  {each.name}: {each.verdict.value} ({each.correct:,} of {each.draws:,})"
            for each in self.classes
        )
        doubts = (f"flagged: {doubt}" for doubt in self.doubts)
        advice = [self.advice] * bool(self.advice)
        return [f"{self.source}: {self.statement}", evidence, *advice, *doubts, *classes]


def certify(
    source: Source,
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    at_least: float,
    *,
    confidence: float = 0.95,
    about: Claim = Claim.POPULATION,
    calls: int = CALLS,
    seed: int = 0,
    quantise: bool = False,
    class_names: Sequence[str] | None = None,
    flags: Sequence[Flag] = (),
    noise: NoiseSet | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Certificate:
    """Draw inputs and perturbations until the test decides or `calls` images are classified.

    Only clean-correct inputs count. With `class_names` every class gets a verdict too, at a confidence
    at which all of them hold together (Bonferroni). `flags` are those known of the source: a warning
    on the search for learned noise turns HOLDS into UNDECIDED, as worse noise may be easy to find.

    With `noise` the question is about all noise of that set around the source, whether it sees the
    input or not (`nppr.statistics.noise_set_test`).
    """
    require_decidable(source)
    require_noise_of_set(source, noise, at_least)

    def asked(sure: float, rows: BoolArray | None = None) -> CountQuestion | SetQuestion:
        if noise is None:
            return CountQuestion(BernoulliTest(at_least, sure), rows)
        return SetQuestion(NoiseSetTest(noise, at_least, sure, seed), rows)

    names = class_names or ()
    share = 1 - (1 - confidence) / max(1, len(names))
    questions = [asked(share, split.labels == label) for label in range(len(names))]
    question = asked(confidence)
    drawing = draw_until_decided(
        source,
        classifier,
        split,
        [question, *questions],
        about=about,
        calls=calls,
        draws=1 if noise is None else SET_DRAWS,
        seed=seed,
        quantise=quantise,
        progress=progress,
    )
    doubts = doubts_of(source, [each for each in flags if not noise or each.source is None])

    def trusted(verdict: Verdict) -> Verdict:
        return Verdict.UNDECIDED if doubts and verdict is Verdict.HOLDS else verdict

    test = question.test
    bounds = test.bounds()
    verdict = trusted(test.verdict)
    doubted = doubts if verdict is not test.verdict else ()
    return Certificate(
        source=source.name,
        metric=source.metric,
        at_least=at_least,
        confidence=confidence,
        about=about,
        verdict=verdict,
        statement=statement(
            source.metric,
            verdict,
            at_least,
            confidence,
            about,
            doubted=bool(doubted),
            noise=noise.words(nouns_of(source).refer_to(source.name)) if noise else None,
            nouns=nouns_of(source),
        ),
        why=drawing.why,
        correct=test.correct,
        draws=test.draws,
        low=bounds.low,
        high=bounds.high,
        inputs=drawing.inputs,
        calls=drawing.calls,
        seed=seed,
        classes=tuple(
            ClassVerdict(label, name, trusted(each.verdict), each.test.correct, each.test.draws)
            for label, (name, each) in enumerate(zip(names, questions, strict=True))
        ),
        doubts=doubted,
        advice=drawing.advice,
    )


def require_decidable(source: Source) -> None:
    """Raise `SpecError` unless the answers under a source are correct or wrong, without a fit."""
    if source.metric not in METRICS:
        raise SpecError(
            f"`source` must be noise, an attack or a corruption, whose answers are correct or wrong,"
            f" got {source.name!r}."
        )
    if source.needs_fit_split:
        raise SpecError(
            f"`source` must not be {source.kind}, which is fitted on other inputs first:"
            " measure it with nppr assess."
        )


def require_noise_of_set(source: Source, noise: NoiseSet | None, at_least: float) -> None:
    """Raise `SpecError` unless a set of noise can lie around the source and reach the value."""
    if noise is None:
        return
    if source.fixed_draws is not None or source.metric not in (Metric.PR, Metric.NPPR):
        raise SpecError(
            f"`source` must be noise where a set of noise around it is given, got {source.name!r}."
        )
    require_reachable(noise, at_least)


def doubts_of(source: Source, flags: Sequence[Flag]) -> tuple[str, ...]:
    """Serious flags on classifier and data, and warnings on the search for learned noise.

    A weak attack is no fault of the noise that beat it.
    """

    def doubts(flag: Flag) -> bool:
        if flag.source is None:
            return SEVERITY.get(flag.id) is Severity.SERIOUS
        searched = source.metric is Metric.NPPR and flag.source == source.name
        known = SEVERITY.get(flag.id) in (Severity.WARNING, Severity.SERIOUS)
        return searched and known and flag.id != ATTACK_TOO_WEAK

    return tuple(dict.fromkeys(f"{flag.id}: {flag.message}" for flag in flags if doubts(flag)))


def nouns_of(source: Source) -> Nouns:
    """Return the words for what a source draws."""
    return NOISE if source.budget is None else source.budget.nouns


def statement(
    metric: Metric,
    verdict: Verdict,
    at_least: float,
    confidence: float,
    about: Claim,
    *,
    doubted: bool = False,
    noise: str | None = None,
    nouns: Nouns = NOISE,
) -> str:
    """What may be quoted; `noise` is a set of noise in words, `nouns` those of the budget.

    Under learned noise or an attack, VIOLATED applies to the worst admissible noise, which can only be
    worse; HOLDS applies only to what was found, and is no verdict where the search is doubted.
    """
    found = {Metric.NPPR: "the worst distribution found", Metric.AR: "this attack"}
    searched = metric in found
    this = "this corruption" if metric is Metric.CORRUPTION else f"this {nouns.noise}"
    level = f"{100 * at_least:g} %"
    sure = f"({100 * confidence:g} % confidence, {about.value}, clean-correct inputs)"
    if doubted:
        return (
            f"undecided: under {found.get(metric, this)} at least {level} of the answers are"
            f" correct {sure}, but its search is flagged: {nouns.worse_noise} may be easy to find"
        )
    if verdict is Verdict.UNDECIDED:
        scope = f" under {nouns.every_noise} {noise}" if noise else ""
        return f"undecided: it is not shown whether at least {level} are correct{scope} {sure}"
    if verdict is Verdict.VIOLATED:
        worst = "perturbation" if metric is Metric.AR else nouns.noise
        under = f"the worst admissible {worst}" if searched else this
        under = f"the worst {nouns.noise} {noise} (it may see the input)" if noise else under
        return f"violated: under {under} fewer than {level} of the answers are correct {sure}"
    under = f"{nouns.every_noise} {noise}" if noise else found.get(metric, this)
    worse = {
        Metric.NPPR: f"; {nouns.worse_noise} may exist in the admissible set",
        Metric.AR: "; worse perturbations may exist in the budget",
    }
    only = "" if noise else worse.get(metric, "")
    return f"holds: under {under} at least {level} of the answers are correct {sure}{only}"
