"""A gate: every requirement of a policy holds, is violated or is undecided, at one confidence.

Of m requirements that draws decide, each gets an m-th of the error `1 - confidence`, half of it for
each end of its interval. By Bonferroni, all intervals contain their values at all looks with
probability at least `confidence`. Then no verdict is wrong, even if requirements share draws. A gate
fails closed: what could not be measured is undecided.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppr.core.tally import Claim, Metric
from nppr.data import DataSpec, slices_of
from nppr.doctor.flags import could_be_raised
from nppr.doctor.model_checks import examine_ready
from nppr.errors import DistributionError, RunFolderError, SpecError, unknown
from nppr.gate.decisions import (
    GateTest,
    decide_tests,
    leave_undecided,
    plan_test,
    require_decidable,
)
from nppr.gate.policy import ABOUT, TESTED, Kind, Policy, Requirement
from nppr.gate.sequential_draws import PairedQuestion, WorstQuestion
from nppr.models import ModelSpec
from nppr.noise.admissible_set import AdmissibleSet
from nppr.report import Report, read_run
from nppr.report.findings import lines_of
from nppr.report.gate_record import Decision, GateRecord
from nppr.report.model import ReportRecord
from nppr.report.number import CLEAN
from nppr.run.assessment_run import AssessmentRun
from nppr.run.complete_run import complete_run
from nppr.run.ladder import make_per_input_noise
from nppr.run.progress import ShowProgress
from nppr.run.resolve import resolve
from nppr.search.learned_noise import load_learned
from nppr.search.search_settings import SearchSettings
from nppr.settings import GRADE_LETTERS, Run
from nppr.sources import CW, Clean, Source, default_sources, parse_sources, split_search
from nppr.statistics.sequential import MeanTest, Verdict
from nppr.system.user_code import contain_exits

PAIRED_DRAWS = 16
"""Draws of each input whose rate is compared with that of a baseline: one block."""


@contain_exits()
def decide_policy(
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
    are refused. If a requirement needs a run (grade, flags, learned noise) and the policy names none,
    the gate measures one. It keeps that run in `out`, if given.
    """
    setup = resolve_policy(policy, model, data)
    asked = policy.requirements()
    flags = examine_ready(setup.classifier, setup.data, seed=policy.measure.seed)
    tested = [each for each in asked if each.kind in TESTED]
    error = (1 - policy.measure.confidence) / (2 * max(1, len(tested)))
    plans = {
        each.text: _plan(policy, setup, each, error) for each in tested if each.admissible is None
    }
    known: _Known | None = None
    with ExitStack() as stack:
        if len(plans) < len(asked):
            folder = policy.run or out or stack.enter_context(tempfile.TemporaryDirectory())
            known = _find_known(policy, setup, Path(folder), progress)
            flags = (*flags, *known.report.flags)
            for each in tested:
                if each.admissible is not None:
                    plans[each.text] = _plan(policy, setup, each, error, known)
    decided, calls = decide_tests(
        [each for each in plans.values() if isinstance(each, GateTest)],
        setup.classifier, setup.data.evaluate, flags=flags,
        confidence=policy.measure.confidence, calls=policy.calls, seed=policy.measure.seed,
        progress=progress,
    )  # fmt: skip
    unmeasured = [each for each in plans.values() if isinstance(each, Decision)]
    found = {each.requirement: each for each in (*decided, *unmeasured)}
    decisions = [found.get(each.text) or _read(each, known) for each in asked]
    return make_record(setup, name, policy.measure.confidence, decisions, len(tested), calls)


def make_record(
    setup: AssessmentRun,
    name: str,
    confidence: float,
    decisions: Sequence[Decision],
    tested: int,
    calls: int,
) -> GateRecord:
    """Return the record of decisions, with what they are about."""
    return GateRecord(
        nppr_version=version("nppr"),
        policy=name,
        classifier=setup.record.classifier,
        data=setup.data.name,
        data_fingerprint=setup.record.data.fingerprint,
        budget=setup.record.budget,
        seed=setup.settings.seed,
        confidence=confidence,
        tested=tested,
        calls=calls,
        decisions=tuple(decisions),
    )


def resolve_policy(
    policy: Policy, model: ModelSpec | None = None, data: DataSpec | None = None
) -> AssessmentRun:
    """Prepare the data and the classifier of a policy, or those given in their place."""
    resolved = resolve(
        policy.model.model if model is None else model,
        policy.data.data if data is None else data,
        policy.measure, policy.budget, network=policy.model, reading=policy.data,
    )  # fmt: skip
    measure = policy.measure.of_inputs(len(resolved.data.evaluate))
    return AssessmentRun.open(resolved, resolved.required_budget(), measure, run=policy.execution)


class _Known(NamedTuple):
    """The report of a run, and the noise it learned by admissible set."""

    report: Report
    learned: Mapping[AdmissibleSet, Source]


def _find_known(
    policy: Policy,
    setup: AssessmentRun,
    folder: Path,
    progress: ShowProgress | None,
) -> _Known:
    """Read the run of the policy, which must be about the same things, or measure one."""
    if policy.run is not None:
        report = read_run(policy.run).report
        _require_same(policy.run, "run", report, setup, of_classifier=True)
    else:
        report = _measure(policy, setup, folder, progress)
    try:
        found = load_learned(folder, setup.budget, setup.feature_model)
    except DistributionError:
        found = []
    own = make_per_input_noise(found[0].record.search.settings, found) if found else []
    sources: list[Source] = [*(each.source for each in found), *own]
    return _Known(
        report,
        {each.admissible: each for each in sources if each.fit_seed is None and each.admissible},
    )


def _measure(
    policy: Policy,
    setup: AssessmentRun,
    folder: Path,
    progress: ShowProgress | None,
) -> Report:
    """Measure a run with the default sources and a second attack, and a search if one is required.

    A single attack would limit the grade. A classifier that guesses is measured too: the requirements
    decide about it.
    """
    _, others = split_search(default_sources(setup.budget), setup.budget)
    sources = parse_sources(others, setup.budget)
    if setup.budget.transform is None:
        sources.append(CW(setup.budget))
    search = _search_settings(policy, len(setup.data.fit))
    made = AssessmentRun.open(
        setup.resolved, setup.budget, setup.settings, sources=sources, search=search,
        run=Run(out=folder, overwrite=True),
    )  # fmt: skip
    made.progress = progress
    with made:
        finder = made.search(search) if search else None
        return complete_run(made, sources, (), finder, anyway=True)


def _search_settings(policy: Policy, inputs: int) -> SearchSettings | None:
    """Return the settings of the search for all required learned noise, down to the lowest rung."""
    asked = [each.admissible for each in policy.requirements() if each.admissible is not None]
    if not asked:
        return None
    lowest = max(asked, key=lambda each: each.place[1:])
    search = policy.search.with_(
        dependency=lowest.rung.value,
        structure=lowest.structure,
        floor=tuple(sorted({each.floor for each in asked})),
    ).resolve(inputs, policy.measure.effort)
    for each in asked:
        if each not in search.sets:
            known = dict.fromkeys(one.label for one in search.sets)
            raise unknown(f"rung beside {lowest.label}", each.label, list(known))
    return search


def _require_same(
    folder: Path, what: str, report: ReportRecord, setup: AssessmentRun, *, of_classifier: bool
) -> None:
    """Raise `RunFolderError` unless a run is about what the policy is about."""
    same = {
        "data": report.data.fingerprint == setup.record.data.fingerprint,
        "budget": report.budget == setup.record.budget,
        "rounding": report.settings.measure.quantise == setup.settings.quantise,
    }
    if of_classifier:
        known = report.classifier.fingerprint == setup.record.classifier.fingerprint
        same = {"classifier": known, **same}
    other = [name for name, agrees in same.items() if not agrees]
    if other:
        raise RunFolderError(
            f"`{what}` must have the same {', '.join(same)} as the policy,"
            f" {str(folder)!r} has another {' and another '.join(other)}."
            " Repeat nppr assess with the policy's options."
        )


def _plan(
    policy: Policy,
    setup: AssessmentRun,
    asked: Requirement,
    error: float,
    known: _Known | None = None,
) -> GateTest | Decision:
    """Return the test of a requirement, each end of whose interval has this error.

    If its noise was not learned, return that it is undecided.
    """
    claim = Claim.POPULATION if asked.always_population else ABOUT[policy.about]
    source: Source | None
    if asked.metric is Metric.ACCURACY:
        source = Clean()
    elif asked.admissible is None:
        (source,) = parse_sources(asked.source, setup.budget)
    else:
        assert known is not None
        source = known.learned.get(asked.admissible)
        if source is None:
            rows = [row for row in known.report.numbers if row.metric is Metric.NPPR and row.error]
            name = f"NPPR {asked.admissible.label} with floor {asked.admissible.floor:g}"
            problem = f"the run has no {name}" + (f": {rows[0].error}" if rows else "")
            return leave_undecided(asked, claim, problem)
    if source.metric is not Metric.ACCURACY:
        require_decidable(source)
    if asked.kind is Kind.PAIRED:
        draws = source.fixed_draws or PAIRED_DRAWS
        return GateTest(asked, claim, source, _compare(setup, asked, source, error, draws), draws)
    if asked.kind is Kind.WORST:
        columns = slices_of(setup.data, setup.data.evaluate.indices, setup.data.evaluate.labels)
        if asked.name not in columns:
            raise unknown("column of slices", asked.name, columns)
        worst = WorstQuestion(asked.at_least, error, columns[asked.name])
        return GateTest(asked, claim, source, worst)
    return plan_test(asked, source, error, claim, seed=policy.measure.seed)


def _compare(
    setup: AssessmentRun, asked: Requirement, source: Source, error: float, draws: int
) -> PairedQuestion:
    """Return the question on a baseline, which must be a run on the same inputs and budget."""
    files = read_run(asked.name)
    _require_same(files.path, "baseline", files.report, setup, of_classifier=False)
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
    if asked.metric is not None and asked.metric.is_outcome:
        rates = (rates == 1).astype(np.float64)
    return PairedQuestion(test, rates, counts, draws)


def _read(asked: Requirement, known: _Known | None) -> Decision:
    """Return the verdict on a grade or a flag, from the report of a run."""
    assert known is not None
    report, flag = known.report, asked.name
    raised = [each for each in report.flags if each.id == flag]
    if asked.kind is Kind.GRADE:
        good = GRADE_LETTERS.index(report.grade.letter) <= GRADE_LETTERS.index(asked.name)
        verdict = Verdict.HOLDS if good else Verdict.VIOLATED
        outcome, why = f"the grade is {report.grade.letter}", report.grade.reason
    elif raised:
        verdict, outcome = Verdict.VIOLATED, f"the flag {flag} was raised"
        why = raised[0].message
    elif could_be_raised(flag, report):
        verdict, outcome = Verdict.HOLDS, f"the flag {flag} was not raised"
        why = "the run checked for it"
    else:
        verdict, outcome = Verdict.UNDECIDED, f"the run did not check for the flag {flag}"
        why = "the run measured nothing that could raise it"
    return Decision(
        requirement=asked.text, verdict=verdict, statement=f"{verdict}: {outcome}", why=why
    )
