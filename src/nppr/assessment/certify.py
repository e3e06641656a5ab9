"""A question decided as soon as the evidence allows: is robustness at least a given value?

Draws come in blocks, and after each block an anytime-valid test looks at them. So it may stop at any
block, and each wrong verdict has probability at most 1 - confidence, however often it looked.

the population   every input is used once, with one draw: independent draws, until inputs run out
this test set    inputs are drawn with replacement, each with a fresh draw: as many draws as wanted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from nppr.classifiers import Prepared
from nppr.data import Split
from nppr.doctor.flags import ATTACK_TOO_WEAK, SEVERITY, Severity
from nppr.errors import SpecError
from nppr.measurement import measure
from nppr.noise_sets import NoiseSet
from nppr.random_draws import key
from nppr.report.model import Flag
from nppr.report.numbers import percent
from nppr.sources import Clean, Source
from nppr.statistics.sequential import BernoulliTest, Verdict, one_sided_bound
from nppr.tally import Claim, Evaluate, IntArray, Metric, Progress, Tally

AT_ONCE = 64
"""Inputs of a block."""

CALLS = 100_000
_LEAST_FAILURE = 1e-9
"""A smaller failure probability cannot be shown by draws."""

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
    states what ended the test, `doubts` why a search is not trusted that found no worse noise.
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
        doubts = (f"search flagged: {doubt}" for doubt in self.doubts)
        return [f"{self.source}: {self.statement}", evidence, *doubts, *classes]


def certify(
    source: Source,
    classifier: Prepared,
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
    input or not. Let p be the mean failure probability of the source. As h is concave, the mean of h
    over inputs is at most h(p), and at least `h(0) + (1 - h(0)) p`, whatever the inputs' own ones are:
    HOLDS is tested where the first, VIOLATED where the second reaches `1 - at_least`.
    """
    if calls < 1:
        raise SpecError(f"`calls` must be a whole number >= 1, got {calls}.")
    if source.metric not in METRICS:
        raise SpecError(
            f"`source` must be noise, an attack or a corruption, whose answers are correct or wrong,"
            f" got {source.name!r}."
        )
    if source.needs_fit_split:
        raise SpecError(
            f"`source` must not be {source.kind}, which is fitted on other inputs first."
        )
    edges = _edges(source, noise, at_least)
    test = BernoulliTest(edges[0], confidence, edges[1])
    names = class_names or ()
    share = 1 - (1 - confidence) / max(1, len(names))
    tests = [BernoulliTest(edges[0], share, edges[1]) for _ in names]
    inputs: set[int] = set()
    each_once = about is Claim.POPULATION
    used, why = 0, "every input was used once" if each_once else "no input is clean-correct"
    for block in _blocks(source, classifier, split, about, seed, quantise):
        used += block.calls
        inputs.update(block.positions.tolist())
        verdict = test.update(int(block.correct.sum()), len(block.correct))
        for label, each in enumerate(tests):
            rows = split.labels[block.positions] == label
            each.update(int(block.correct[rows].sum()), int(rows.sum()))
        if progress:
            left = max(0, calls - used)
            progress(Progress(source.name, test.draws, test.draws + left, test.correct))
        waiting = any(each.verdict is Verdict.UNDECIDED for each in tests)
        if verdict is not Verdict.UNDECIDED and not waiting:
            why = "the evidence is sufficient"
            break
        if used >= calls:
            why = f"{used:,} calls were used"
            break
    doubts = () if noise else _doubts(source, flags)

    def trusted(verdict: Verdict) -> Verdict:
        return Verdict.UNDECIDED if doubts and verdict is Verdict.HOLDS else verdict

    low, high = _bounds(test)
    if noise is not None:
        low, high = 1 - float(noise.h(np.array(1 - low))), high * (1 - float(noise.h(np.zeros(()))))
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
            noise=noise.words(f"{source.name} noise") if noise else None,
        ),
        why=why,
        correct=test.correct,
        draws=test.draws,
        low=low,
        high=high,
        inputs=len(inputs),
        calls=used,
        seed=seed,
        classes=tuple(
            ClassVerdict(label, name, trusted(each.verdict), each.correct, each.draws)
            for label, (name, each) in enumerate(zip(names, tests, strict=True))
        ),
        doubts=doubted,
    )


def _edges(source: Source, noise: NoiseSet | None, at_least: float) -> tuple[float, float]:
    """The probability of a correct answer above which it holds, and that below which it is violated."""
    if noise is None:
        return at_least, at_least
    if source.fixed_draws is not None or source.metric not in (Metric.PR, Metric.NPPR):
        raise SpecError(
            f"`source` must be noise where a set of noise around it is given, got {source.name!r}."
        )
    best = 1 - float(noise.h(np.zeros(())))
    p = noise.largest_p(at_least)
    if p is None or p < _LEAST_FAILURE:
        raise SpecError(
            f"`at-least` must be below {best:g} for noise {noise.words()}, got {at_least:g}: it cannot"
            " be shown even where the source never fails. Give a smaller set or a lower value."
        )
    return 1 - p, at_least / best


def _bounds(test: BernoulliTest) -> tuple[float, float]:
    """Both bounds, with the one that decided: later draws, for the classes, take nothing from it."""
    counts = test.correct, test.draws - test.correct
    low, high = (one_sided_bound(*counts, test.confidence, above=above) for above in (True, False))
    if test.bound is None:
        return low, high
    holds = test.verdict is Verdict.HOLDS
    return (max(low, test.bound), high) if holds else (low, min(high, test.bound))


def _doubts(source: Source, flags: Sequence[Flag]) -> tuple[str, ...]:
    """Warnings on the search for learned noise; a weak attack is no fault of the noise that beat it."""
    if source.metric is not Metric.NPPR:
        return ()
    doubts = (
        f"{flag.id}: {flag.message}"
        for flag in flags
        if flag.source == source.name
        and flag.id != ATTACK_TOO_WEAK
        and SEVERITY.get(flag.id) in (Severity.WARNING, Severity.SERIOUS)
    )
    return tuple(dict.fromkeys(doubts))


def statement(
    metric: Metric,
    verdict: Verdict,
    at_least: float,
    confidence: float,
    about: Claim,
    *,
    doubted: bool = False,
    noise: str | None = None,
) -> str:
    """What may be quoted; `noise` is a set of noise in words.

    Under learned noise or an attack, VIOLATED applies to the worst admissible noise, which can only be
    worse; HOLDS applies only to what was found, and is no verdict where the search is doubted.
    """
    found = {Metric.NPPR: "the worst distribution found", Metric.AR: "this attack"}
    searched = metric in found
    level = f"{100 * at_least:g} %"
    sure = f"({100 * confidence:g} % confidence, {about.value}, clean-correct inputs)"
    if doubted:
        return (
            f"undecided: under {found.get(metric, 'this noise')} at least {level} of the answers are"
            f" correct {sure}, but its search is flagged: worse noise may be easy to find"
        )
    if verdict is Verdict.UNDECIDED:
        scope = f" under all noise {noise}" if noise else ""
        return f"undecided: nothing is shown about {level}{scope} {sure}"
    if verdict is Verdict.VIOLATED:
        under = "the worst admissible noise" if searched else "this noise"
        under = f"the worst noise {noise} (it may see the input)" if noise else under
        return f"violated: under {under} fewer than {level} of the answers are correct {sure}"
    under = f"all noise {noise}" if noise else found.get(metric, "this noise")
    worse = {
        Metric.NPPR: "; worse noise may exist in the admissible set",
        Metric.AR: "; worse perturbations may exist in the budget",
    }
    only = "" if noise else worse.get(metric, "")
    return f"holds: under {under} at least {level} of the answers are correct {sure}{only}"


class _Block(NamedTuple):
    """Some draws: the position of the input of each, whether the answer was correct, calls made."""

    positions: IntArray
    correct: IntArray
    calls: int


def _blocks(
    source: Source,
    classifier: Prepared,
    split: Split[Evaluate],
    about: Claim,
    seed: int,
    quantise: bool,
) -> Iterator[_Block]:
    """Draws in blocks, from the seeded order of the inputs or with replacement."""

    def measured(each: Source, positions: IntArray, seed: int = 0) -> Tally[Evaluate]:
        """One draw of each of these inputs."""
        chosen = replace(split, indices=split.indices[positions], labels=split.labels[positions])
        ones = np.ones(len(positions), bool)
        return measure(
            each, classifier, chosen, draws=1, seed=seed, clean_correct=ones, quantise=quantise
        )

    def clean_correct(positions: IntArray) -> tuple[IntArray, int]:
        """Those that are clean-correct, and the calls it took."""
        tally = measured(Clean(), positions)
        return positions[tally.correct == 1], tally.calls

    def drawn(positions: IntArray, seed: int, spent: int) -> _Block:
        if not len(positions):
            return _Block(positions, positions, spent)
        tally = measured(source, positions, seed)
        return _Block(positions, tally.correct, tally.calls + spent)

    random = np.random.default_rng(key(seed, "certify/order", 0, 0) & 0xFFFFFFFF)
    order = random.permutation(len(split))
    if about is Claim.POPULATION:
        for start in range(0, len(order), AT_ONCE):
            correct, spent = clean_correct(order[start : start + AT_ONCE])
            yield drawn(correct, seed, spent)
        return
    known = np.full(len(split), -1)  # 1 clean-correct, 0 wrong, -1 not looked at yet
    number = 0
    while (known != 0).any():
        left = random.integers(len(split), size=AT_ONCE)
        new = np.unique(left[known[left] < 0])
        correct, spent = clean_correct(new) if len(new) else (new, 0)
        known[new] = 0
        known[correct] = 1
        left = left[known[left] == 1]
        if not len(left):
            yield _Block(left, left, spent)
        while len(left):  # an input that was drawn twice gets two draws of its own
            chosen, first = np.unique(left, return_index=True)
            yield drawn(chosen, key(seed, "certify/draws", 0, number) & 0x7FFFFFFF, spent)
            left = np.delete(left, first)
            number, spent = number + 1, 0
