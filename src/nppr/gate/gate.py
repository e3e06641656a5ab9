"""A gate: every requirement of a policy holds, is violated or is undecided, at one confidence.

Of m requirements that draws decide, each has an m-th of the error `1 - confidence`, half of it for each
end of its interval. By Bonferroni all intervals contain their values at all looks with probability at
least `confidence`, and then no verdict is wrong, however requirements share draws. What could not be
measured is undecided: a gate fails closed.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppr.core.tally import Claim, Direction, Metric
from nppr.data import CLASS, DataSpec, slices_of
from nppr.doctor.examine import examine_ready
from nppr.doctor.flags import SEVERITY, could_be_raised
from nppr.errors import DistributionError, InputError, RunFolderError, SpecError, unknown
from nppr.export.claims import doubting_flags
from nppr.gate.certify import (
    nouns_of,
    require_decidable,
    require_noise_of_set,
    statement,
)
from nppr.gate.gate_questions import (
    BoundQuestion,
    GateQuestion,
    LevelQuestion,
    PairedQuestion,
    Reading,
    WorstQuestion,
)
from nppr.gate.policy import ABOUT, TESTED, Kind, Policy, Requirement
from nppr.gate.sequential_draws import MORE_INPUTS, draw_until_decided
from nppr.models import ModelSpec
from nppr.noise.family import Dependency
from nppr.report import Report, read_run
from nppr.report.findings import lines_of
from nppr.report.gate_record import Decision, GateRecord
from nppr.report.model import CLEAN, Flag, ReportRecord
from nppr.report.numbers import percent
from nppr.run.ladder import per_input_noise
from nppr.run.prepare import Setup, prepare_run
from nppr.run.progress import ShowProgress
from nppr.run.resolve import resolve
from nppr.run.run import complete_run
from nppr.search.learned_noise import load_learned
from nppr.search.search_settings import SearchSettings
from nppr.settings import GRADE_LETTERS, Run
from nppr.sources import CW, Clean, Source, default_sources, parse_sources, split_search
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict
from nppr.system.user_code import contain_exits

logger = logging.getLogger(__name__)

PAIRED_DRAWS = 16
"""Draws of each input where its rate is compared with that of a baseline: one block."""


@contain_exits()
def gate(
    policy: Policy,
    model: ModelSpec | None = None,
    data: DataSpec | None = None,
    *,
    name: str = "policy",
    out: str | Path | None = None,
    progress: ShowProgress | None = None,
) -> GateRecord:
    """Decide every requirement of a policy.

    `model` and `data` replace the keys of these names; all other keys of the policy apply to them, or
    are refused. Where a requirement needs a run (grade, flags, learned noise) and the policy names
    none, one is measured, and kept in `out` if that is given.
    """
    setup = resolve_policy(policy, model, data)
    asked = policy.requirements()
    seen = examine_ready(setup.classifier, setup.data, seed=policy.measure.seed)
    share = (1 - policy.measure.confidence) / (
        2 * max(1, sum(each.kind in TESTED for each in asked))
    )
    with ExitStack() as stack:
        known: _Known | None = None
        flags = {each.text: flag_named(each.name) for each in asked if each.kind is Kind.FLAG}
        alone = {each: each.kind in TESTED and each.rung is None for each in asked}
        tests = [_plan(policy, setup, each, share) for each in asked if alone[each]]
        if not all(alone.values()):
            folder = policy.run or out or stack.enter_context(tempfile.TemporaryDirectory())
            known = _evidence(policy, setup, Path(folder), progress)
        tests += [
            _plan(policy, setup, each, share, known)
            for each in asked
            if each.kind in TESTED and not alone[each]
        ]
    for test in tests:
        test.doubts = _doubts(test, (*seen, *(known.report.flags if known else ())))
    calls = _draw(policy, setup, tests, progress)
    tested = {test.requirement.text: test.decision(policy) for test in tests}
    decisions = [
        tested[each.text] if each.text in tested else _read(each, known, flags.get(each.text, ""))
        for each in asked
    ]
    return GateRecord(
        nppr_version=version("nppr"),
        policy=name,
        classifier=setup.record.classifier,
        data=setup.data.name,
        data_fingerprint=setup.record.data.fingerprint,
        budget=setup.record.budget,
        seed=policy.measure.seed,
        confidence=policy.measure.confidence,
        tested=len(tests),
        calls=calls,
        decisions=tuple(decisions),
    )


def resolve_policy(
    policy: Policy, model: ModelSpec | None = None, data: DataSpec | None = None
) -> Setup:
    """What a policy is tested on: its data and classifier, or those that are given in their place."""
    resolved = resolve(
        policy.model.model if model is None else model,
        policy.data.data if data is None else data,
        policy.measure, policy.budget, network=policy.model, reading=policy.data,
    )  # fmt: skip
    measure = policy.measure.of_inputs(len(resolved.data.evaluate))
    return prepare_run(resolved, resolved.required_budget(), measure, run=policy.execution)


class _Known(NamedTuple):
    """What a run has found out: its report, and the noise it has learned by rung and floor."""

    report: Report
    learned: Mapping[tuple[Dependency | None, float | None], Source]


def _evidence(
    policy: Policy,
    setup: Setup,
    folder: Path,
    progress: ShowProgress | None,
) -> _Known:
    """The run of the policy, which must be of the same things, or one that is measured now."""
    if policy.run is not None:
        report = read_run(policy.run).report
        same = {
            "classifier": report.classifier.fingerprint == setup.record.classifier.fingerprint,
            **_same(report, setup),
        }
        _require_same(policy.run, "run", same)
    else:
        report = _measure(policy, setup, folder, progress)
    try:
        found = load_learned(folder, setup.budget, setup.feature_model)
    except DistributionError:
        found = []
    own = per_input_noise(found[0].record.search.settings, found) if found else []
    sources: list[Source] = [*(each.source for each in found), *own]
    return _Known(
        report,
        {(each.dependency, each.floor): each for each in sources if each.fit_seed is None},
    )


def _measure(
    policy: Policy,
    setup: Setup,
    folder: Path,
    progress: ShowProgress | None,
) -> Report:
    """A run with the default sources and a second attack, and a search if a requirement needs one.

    A single attack would limit the grade. Requirements decide about a classifier that guesses.
    """
    _, others = split_search(default_sources(setup.budget), setup.budget)
    sources = parse_sources(others, setup.budget)
    if setup.budget.transform is None:
        sources.append(CW(setup.budget))
    search = _search(policy, len(setup.data.fit))
    made = prepare_run(
        setup.resolved, setup.budget, setup.settings, sources=sources, search=search,
        run=Run(out=folder, overwrite=True),
    )  # fmt: skip
    with made:
        finder = made.search(search, progress) if search else None
        return complete_run(made, sources, (), finder, progress, anyway=True)


def _search(policy: Policy, inputs: int) -> SearchSettings | None:
    """The search for all learned noise that is required; it goes as far down as the lowest rung."""
    asked = [each for each in policy.requirements() if each.rung is not None]
    if not asked:
        return None
    rungs = [each.rung for each in asked if each.rung is not None]
    lowest = max(rungs, key=lambda rung: (rung.depth, rung.value))
    floors = tuple(sorted({each.floor for each in asked}))
    search = policy.search.with_(dependency=lowest.value, floor=floors).resolve(
        inputs, policy.measure.effort
    )
    for rung in rungs:
        if rung not in search.rungs:
            raise unknown(
                f"rung beside {lowest.value}", rung.value, [each.value for each in search.rungs]
            )
    return search


def _same(report: ReportRecord, setup: Setup) -> dict[str, bool]:
    return {
        "data": report.data.fingerprint == setup.record.data.fingerprint,
        "budget": report.budget == setup.record.budget,
        "rounding": report.settings.measure.quantise == setup.settings.quantise,
    }


def _require_same(folder: Path, what: str, same: Mapping[str, bool]) -> None:
    other = [name for name, agrees in same.items() if not agrees]
    if other:
        raise RunFolderError(
            f"`{what}` must have the same {', '.join(same)} as the policy,"
            f" {str(folder)!r} has another {' and another '.join(other)}."
            " Repeat nppr assess with the policy's options."
        )


@dataclass(eq=False)
class _Test:
    """A requirement that draws decide: its source, its question, and how its interval is read.

    `problem` states why it could not be measured.
    """

    requirement: Requirement
    source: Source | None
    question: GateQuestion | None
    claim: Claim
    doubts: tuple[str, ...] = ()
    problem: str = ""
    inputs: int = 0
    draws: int = 1
    why: str = ""
    advice: str = ""

    @property
    def always_population(self) -> bool:
        """Whether it is about the population whatever the policy states."""
        return self.requirement.metric is Metric.ACCURACY or self.requirement.kind is Kind.PAIRED

    def decision(self, policy: Policy) -> Decision:
        """The verdict, in the words of a certificate."""
        asked, question = self.requirement, self.question
        searched = asked.metric in (Metric.NPPR, Metric.AR)
        direction = Direction.UPPER_BOUND if searched else Direction.ESTIMATE
        decided = Decision(
            requirement=asked.text,
            verdict=Verdict.UNDECIDED,
            statement="undecided: it could not be measured",
            why=self.problem,
            at_least=asked.at_least,
            metric=Metric.BOUND if asked.noise_set else asked.metric,
            direction=Direction.LOWER_BOUND if asked.noise_set else direction,
            claim=self.claim,
            source=self.source.name if self.source else None,
        )
        if self.problem or question is None:
            return decided
        found = question.read()
        doubted = bool(self.doubts) and question.verdict is Verdict.HOLDS
        verdict = Verdict.UNDECIDED if doubted else question.verdict
        why = f"flagged: {', '.join(self.doubts)}" if doubted else self.why
        if question.verdict is Verdict.UNDECIDED and self.advice:
            why = f"{why}. {self.advice}"
        return decided.model_copy(
            update={
                "verdict": verdict,
                "statement": _words(self, verdict, policy, found, doubted=doubted),
                "why": why,
                "inputs": self.inputs,
                "value": found.value,
                "low": found.interval.low,
                "high": found.interval.high,
                "draws": found.draws,
                "slices": found.slices,
            }
        )


def _plan(
    policy: Policy, setup: Setup, asked: Requirement, error: float, known: _Known | None = None
) -> _Test:
    """The test of a requirement, each end of whose interval has this error."""
    source = _source(setup, asked, known)
    if source is None:
        assert known is not None
        rows = [row for row in known.report.results if row.metric is Metric.NPPR and row.error]
        name = f"NPPR {asked.rung} with floor {asked.floor:g}"
        problem = f"the run has no {name}" + (f": {rows[0].error}" if rows else "")
        return _Test(asked, None, None, ABOUT[policy.about], problem=problem)
    if source.metric is not Metric.ACCURACY:
        require_decidable(source)
    made = _Test(asked, source, None, ABOUT[policy.about])
    if made.always_population:
        made.claim = Claim.POPULATION
    if asked.kind is Kind.PAIRED:
        made.draws = source.fixed_draws or PAIRED_DRAWS
        made.question = _paired(setup, asked, source, error, made.draws)
    elif asked.kind is Kind.WORST:
        columns = slices_of(setup.data, setup.data.evaluate.indices, setup.data.evaluate.labels)
        if asked.name not in columns:
            raise unknown("column of slices", asked.name, columns)
        made.question = WorstQuestion(asked.at_least, error, columns[asked.name])
    elif asked.noise_set is not None:
        require_noise_of_set(source, asked.noise_set, asked.at_least)
        made.draws = SET_DRAWS
        test = NoiseSetTest(asked.noise_set, asked.at_least, 1 - error, policy.measure.seed)
        made.question = BoundQuestion(test)
    else:
        made.question = LevelQuestion(BernoulliTest(asked.at_least, 1 - error))
    return made


def _doubts(test: _Test, flags: Sequence[Flag]) -> tuple[str, ...]:
    """The flags for which "holds" would be false comfort: the number may be too high, or wrong."""
    asked, source = test.requirement, test.source
    if source is None or asked.kind is Kind.PAIRED:
        return ()
    searched = asked.metric in (Metric.NPPR, Metric.AR) and asked.noise_set is None
    direction = Direction.UPPER_BOUND if searched else Direction.ESTIMATE
    doubting = doubting_flags(flags, (source.name,), asked.metric, direction)
    return tuple(dict.fromkeys(flag.id for flag in doubting))


def _source(setup: Setup, asked: Requirement, known: _Known | None) -> Source | None:
    """The source of a requirement; None where learned noise was not found."""
    if asked.metric is Metric.ACCURACY:
        return Clean()
    if asked.rung is not None:
        return known.learned.get((asked.rung, asked.floor)) if known else None
    (source,) = parse_sources(asked.source, setup.budget)
    return source


def _paired(
    setup: Setup, asked: Requirement, source: Source, error: float, draws: int
) -> PairedQuestion:
    """The question on a baseline, which must be a run on the same inputs in the same budget."""
    files = read_run(asked.name)
    _require_same(files.path, "baseline", _same(files.report, setup))
    lines = lines_of(files.per_input, files.path)
    wanted = source.name if asked.metric is not Metric.ACCURACY else next(iter(lines), CLEAN)
    if wanted not in lines or files.report.settings.measure.only_merged:
        raise unknown(f"source of the baseline {asked.name}", wanted, lines)
    if wanted in {each.source for each in files.report.audits if not each.discarded}:
        raise SpecError(
            f"`baseline` must hold exact counts of {wanted!r}, but {asked.name!r} was measured with"
            f" --engine {files.report.settings.measure.engine}. Repeat it without --engine."
        )
    table, split = lines[wanted], setup.data.evaluate
    at = np.searchsorted(table["index"], split.indices)
    clean = table["clean_correct"][at] == 1
    aim = max(1e-3, -asked.at_least / 2)
    test = MeanTest((asked.at_least + 1) / 2, 1 - error, aim, setup.settings.seed)
    if asked.metric is Metric.ACCURACY:
        rates, counts = clean.astype(np.float64), np.ones(len(split), bool)
    else:
        rates, counts = (table["correct"] / table["draws"])[at], clean
    if asked.metric in (Metric.AR, Metric.CORRUPTION):
        rates = (rates == 1).astype(np.float64)
    return PairedQuestion(test, rates, counts, draws)


def _draw(
    policy: Policy, setup: Setup, tests: Sequence[_Test], progress: ShowProgress | None
) -> int:
    """Draw for all tests, once for those that ask the same draws; the calls it took."""
    groups: dict[tuple[str, int, Claim], list[_Test]] = {}
    for test in tests:
        if test.source is not None:
            groups.setdefault((test.source.name, test.draws, test.claim), []).append(test)
    used = 0
    for (_, draws, claim), group in groups.items():
        source = group[0].source
        assert source is not None
        try:
            drawn = draw_until_decided(
                source,
                setup.classifier,
                setup.data.evaluate,
                [each.question for each in group if each.question is not None],
                about=claim,
                calls=policy.calls,
                draws=draws,
                seed=policy.measure.seed,
                quantise=policy.measure.quantise,
                progress=progress,
            )
        except InputError:
            raise
        except Exception as error:  # whatever a source does, the others are decided
            logger.debug("%s failed", source.name, exc_info=error)
            for test in group:
                test.problem = " ".join(str(error).split()) or type(error).__name__
            continue
        used += drawn.calls
        for test in group:
            test.inputs, test.why, test.advice = drawn.inputs, drawn.why, drawn.advice
            if test.always_population and test.advice == MORE_INPUTS:
                test.advice = "To decide it, provide more inputs."
    return used


def _words(test: _Test, verdict: Verdict, policy: Policy, found: Reading, *, doubted: bool) -> str:
    """What may be quoted."""
    asked, sure = (
        test.requirement,
        f"{100 * policy.measure.confidence:g} % confidence, {test.claim.value}",
    )
    level = f"{100 * abs(asked.at_least):g}"
    if asked.kind is Kind.PAIRED:
        counted = (
            "inputs"
            if asked.metric is Metric.ACCURACY
            else "inputs that are clean-correct for both"
        )
        points = f"{level} percentage point{'' if level == '1' else 's'}"
        outcome = {
            Verdict.HOLDS: f"less than {points} worse than {asked.name}, if at all",
            Verdict.VIOLATED: f"more than {points} worse than {asked.name}",
        }.get(verdict, f"it is not shown whether it is {points} worse than {asked.name}")
        where = f" [{test.source.name}]" if test.source and asked.source else ""
        return f"{verdict}: {outcome} ({sure}, {counted}){where}"
    if asked.metric is Metric.ACCURACY:
        outcome = {
            Verdict.HOLDS: f"at least {level} % of the answers are correct on clean inputs",
            Verdict.VIOLATED: f"fewer than {level} % of the answers are correct on clean inputs",
        }.get(verdict, f"it is not shown whether at least {level} % are correct on clean inputs")
        return f"{verdict}: {outcome} ({sure})"
    assert test.source is not None
    nouns = nouns_of(test.source)
    noise = asked.noise_set.words(nouns.refer_to(test.source.name)) if asked.noise_set else None
    if doubted:
        under = f"{nouns.every_noise} {noise}" if noise else test.source.name
        return (
            f"undecided: under {under} at least {level} % of the answers are correct ({sure}), but"
            " flags of the run make it unreliable"
        )
    said = statement(
        asked.metric or Metric.PR, verdict, asked.at_least, policy.measure.confidence, test.claim,
        noise=noise, nouns=nouns,
    )  # fmt: skip
    if asked.kind is not Kind.WORST or not found.slices:
        return f"{said} [{test.source.name}]"
    worst = found.slices[0]
    seen = "no input" if worst.value is None else f"{percent(worst.value)} %"
    where = "at least one" if verdict is Verdict.VIOLATED else "every"
    lowest = f"lowest observed: {worst.name} ({seen})"
    named = CLASS if asked.name == CLASS else f"slice of {asked.name}"
    return f"{said} [{test.source.name}], in {where} {named}; {lowest}"


def _read(asked: Requirement, known: _Known | None, name: str) -> Decision:
    """The verdict on a grade or a flag, from the report of a run."""
    assert known is not None
    report = known.report
    if asked.kind is Kind.GRADE:
        good = GRADE_LETTERS.index(report.grade.letter) <= GRADE_LETTERS.index(asked.name)
        verdict = Verdict.HOLDS if good else Verdict.VIOLATED
        return Decision(
            requirement=asked.text,
            verdict=verdict,
            statement=f"{verdict}: the grade is {report.grade.letter}",
            why=report.grade.reason,
        )
    raised = [flag for flag in report.flags if flag.id == name]
    if raised:
        said = f"violated: the flag {name} was raised"
        return Decision(
            requirement=asked.text, verdict=Verdict.VIOLATED, statement=said, why=raised[0].message
        )
    if not could_be_raised(name, report):
        why = "the run measured nothing that could raise it"
        said = f"undecided: the run did not check for the flag {name}"
        return Decision(requirement=asked.text, verdict=Verdict.UNDECIDED, statement=said, why=why)
    said = f"holds: the flag {name} was not raised"
    return Decision(
        requirement=asked.text, verdict=Verdict.HOLDS, statement=said, why="the run checked for it"
    )


def flag_named(name: str) -> str:
    """The id of a flag, from the id or from a word that only one id has.

    >>> flag_named("masking")
    'gradient-masking'
    """
    near = [each for each in SEVERITY if name in each.split("-")]
    if name not in SEVERITY and len(near) != 1:
        raise unknown("flag", name, SEVERITY)
    return name if name in SEVERITY else near[0]
