"""One run: measure every source on the same inputs, read the tallies, write the report."""

from __future__ import annotations

import contextlib
import copy
import logging
import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, Metric
from nppr.data import Split, short_digests
from nppr.doctor.flags import (
    BY_SCORES,
    FITTED_ON,
    NO_FEATURES,
    NORMALISATION,
    PRECISION,
    QUICK_RUN,
    RARE_PARTLY,
    audit_flags,
    flag,
    grade,
    number_flags,
    overlap_flags,
)
from nppr.doctor.model_checks import check_model
from nppr.doctor.result_checks import (
    FEWEST_CLEAN_CORRECT,
    accuracy_beside_chance,
    check_ladder,
    check_results,
    is_guessing,
)
from nppr.errors import ClassifierError, RunStopped
from nppr.formats import names_code
from nppr.models import within_memory
from nppr.report import Report, per_input_of
from nppr.report.evidence import Evidence
from nppr.report.model import SCHEMA_VERSION, AuditRecord, Environment, Flag, Timing
from nppr.report.number import LearnedSubject, Number
from nppr.run.assessment_run import AssessmentRun, PlannedMeasurement
from nppr.run.collect_evidence import collect_evidence
from nppr.run.ladder import describe_rungs, make_per_input_noise, plan_checks
from nppr.run.make_numbers import apply_supersets, correct_lowest, measure_slices
from nppr.run.precision import Growth
from nppr.run.rare_failures import Followed, follow_rare_failures
from nppr.run.shards import share_out
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import NoiseSearch
from nppr.settings import QUICK
from nppr.sources import NPPR, Source, references, share_error
from nppr.statistics.estimates import allow_for_audit, estimate_accuracy

logger = logging.getLogger(__name__)


def complete_run(
    run: AssessmentRun,
    sources: Sequence[Source],
    learned: Sequence[LearnedNoise] = (),
    search: NoiseSearch | None = None,
    *,
    examine: bool = True,
    anyway: bool = False,
) -> Report:
    """Measure all sources; one that fails gets a row that states why, and the others go on.

    The order is: clean inputs, everything that is fitted, every source; learned noise comes last. With
    a wanted precision, inputs and draws grow before sources are read. Without `examine` the classifier
    is not checked beforehand and nothing is collected for a page, as for the nodes of a study. A
    classifier that guesses is measured only `anyway`.
    """
    # First: unreadable data must not cost a finished run.
    with within_memory(run.classifier.original.name):
        flags = _examine(run, search) if examine else []
        growth = Growth(run) if run.settings.precision is not None else None
        keep = _sees_features(run, learned, search)
        features = run.measure_clean(keep=keep and growth is None)
    if examine and not anyway and not run.finished:
        _require_better_than_guessing(run, flags)
    ordered = share_error(sources)
    if run.settings.only_merged:
        ordered.sort(key=lambda source: source.cost)
    ready = [run.fitted(source) for source in ordered]
    found, failed = _run_search(run, search)
    given = [*learned, *(found if search is not None and search.given else ())]
    learned = [*learned, *found]
    if growth is not None:
        own = make_per_input_noise(search.settings, learned) if search is not None else []
        winners = {each.winner for each in learned}
        others = [noise for noise in references(run.budget) if noise.name in winners]
        growth.grow([*ready, *(each.source for each in learned), *own, *others])
        features = run.measure_clean(keep=keep)
    run.learned = [
        each if each.source.feature_model else each.with_known(features) for each in learned
    ]
    run.own = make_per_input_noise(search.settings, run.learned) if search is not None else []
    share_out(run, _plan(run, ordered, ready))
    for source in ready:
        run.measure(source)
    run.numbers += failed
    for each in run.learned:
        run.measure_learned(each)
    for noise in run.own:
        run.measure(noise)
    reused = _reused(given, run.data.evaluate)
    for name, count in reused.items():
        flags.append(flag(FITTED_ON, f"{count:,} of the evaluated inputs", name))
    run.numbers = [
        row.for_test_set()
        if row.tally in reused or (row.bound and row.bound.reference in reused)
        else row
        for row in run.numbers
    ]
    return _report(run, ordered, ready, flags, growth, show=examine)


def _plan(
    run: AssessmentRun, given: Sequence[Source], ready: Sequence[Source]
) -> list[PlannedMeasurement]:
    """Plan all measurements, in their order; `given` are the sources before their fits."""
    if run.pool is None:
        return []
    noises = [*(each.source for each in run.learned), *run.own]
    sources = [*ready, *noises]
    known = run.record.classifier.fingerprint
    winners = {each.winner for each in run.learned if each.winner and each.was_compared(known)}
    winners -= {source.name for source in sources}
    sources += [noise for noise in references(run.budget) if noise.name in winners]
    planned = [run.plan(source) for source in sources]
    for text in run.settings.radii:
        other = run.budget.at(text)
        for source in (*given, *noises):
            with contextlib.suppress(Exception):  # its number states why
                if source.budget is not None:
                    planned.append(_plan_at(run, source, other))
    return planned + plan_checks(run)


def _plan_at(run: AssessmentRun, source: Source, budget: Budget) -> PlannedMeasurement:
    """Plan a source at another radius: learned noise is scaled, what is fitted is fitted again."""
    return run.plan(run.fitted(source.at(budget)), f"{source.name}@{budget.radius!r}")


def _require_better_than_guessing(run: AssessmentRun, flags: Sequence[Flag]) -> None:
    """Raise `ClassifierError` for a classifier whose robustness would mean nothing."""
    classes = run.data.classes
    if len(run.clean.correct) < FEWEST_CLEAN_CORRECT or not is_guessing(run.clean, classes):
        return  # a few inputs show little; a flag is raised
    found = accuracy_beside_chance(estimate_accuracy(run.clean, run.settings.confidence), classes)
    causes = [each.message.partition(": ")[0] for each in flags if each.id == NORMALISATION]
    known = run.record.classifier
    if known.weights is None and names_code(known.name):
        causes.append("No weights were given")
    raise ClassifierError(
        f"`model` must be better than guessing, got {found} on {len(run.clean.correct):,} inputs."
        f" {''.join(f'{cause}. ' for cause in causes)}Check --weights, --mean and --std, and the class"
        " order, or add --anyway to measure it as it is."
    )


def _examine(run: AssessmentRun, search: NoiseSearch | None) -> list[Flag]:
    """Examine data and classifier before anything is measured."""
    reference, seed = run.classifier.original, run.settings.seed
    flags = [*overlap_flags(run.data), *check_model(reference, run.data, seed=seed)]
    if search is not None and search.settings.recipe.scores:
        flags.append(flag(BY_SCORES, source=NPPR))
    elif search is not None and run.lacks_features(run.record.settings.search):
        flags.append(flag(NO_FEATURES, source=NPPR))
    return flags


def _run_search(
    run: AssessmentRun, search: NoiseSearch | None
) -> tuple[list[LearnedNoise], list[Number]]:
    """Run a search and keep what it finds in the run's folder; or return why it failed."""
    if search is None:
        return [], []
    try:
        with run.timed("fit"):
            found = search.run()
    except RunStopped:
        raise
    except Exception as error:
        return [], [run.without_value(LearnedSubject(), Metric.NPPR, error)]
    if run.folder:
        run.folder.save_learned(found)
    return found, []


def _reused(learned: Sequence[LearnedNoise], split: Split[Evaluate]) -> dict[str, int]:
    """Count the evaluated inputs on which learned noise was fitted or selected, by its name."""
    if not learned:  # the digests of large data take long
        return {}
    evaluated = short_digests(split)
    counts = {each.source.name: int(np.isin(evaluated, each.seen).sum()) for each in learned}
    return {name: count for name, count in counts.items() if count}


def _sees_features(
    run: AssessmentRun, learned: Sequence[LearnedNoise], search: NoiseSearch | None
) -> bool:
    """Return whether learned noise will see features of this classifier."""
    sees = any(
        each.source.distribution.features and not each.source.feature_model for each in learned
    )
    if search is not None and search.feature_model is None:
        sees = sees or search.settings.family.dependency.sees_input
    return sees and run.record.classifier.features is not None


def _report(
    run: AssessmentRun,
    given: Sequence[Source],
    ready: Sequence[Source],
    flags: Sequence[Flag],
    growth: Growth | None,
    *,
    show: bool,
) -> Report:
    """Read what all measurements show together, and write the report to the run's folder."""
    record = run.record
    if growth:
        record = record.model_copy(update={"data": growth.describe(record.data)})
    noises: list[Source] = [*(each.source for each in run.learned), *run.own]
    sources = [*ready, *noises]
    run.merge()
    run.numbers = correct_lowest(run.numbers, run.tallies, run.settings.seed, run.stopped)
    rare: dict[str, Followed] = {}
    if run.settings.rare_calls is not None:
        rare, rows = follow_rare_failures(run, sources)
        run.numbers += rows
    run.numbers = apply_supersets(run.numbers, sources)
    learned = [each.describe() for each in run.learned]
    measured = [source for source in sources if source.name in run.tallies]
    ladder = describe_rungs(run, ready)
    settings, classes = run.settings, run.data.classes
    audits = tuple(
        AuditRecord(
            source=name,
            widened_by=allow_for_audit(tally, settings.confidence).of_mean(
                max(1, int(tally.clean_correct.sum()))
            ),
            **vars(tally.audit),
        )
        for name, tally in run.tallies.items()
        if tally.audit is not None
    )
    flags = [
        *flags,
        *number_flags(run.numbers),
        *check_results(
            run.numbers, run.tallies, measured, learned, run.clean, classes, settings.confidence
        ),
        *check_ladder(
            ladder,
            run.tallies,
            {each.source.name: each.record.search.settings for each in run.learned},
        ),
        *_unfinished(growth, rare),
        *audit_flags(audits),
        *([flag(QUICK_RUN)] if settings.effort == QUICK else []),
    ]
    classifier = run.classifier
    report = Report(
        schema_version=SCHEMA_VERSION,
        **dict(record),
        numbers=tuple(run.numbers),
        other_radii=tuple(_at_other_radii(run, [*given, *noises])),
        distributions=tuple(learned),
        ladder=tuple(ladder),
        flags=tuple(flags),
        grade=grade(flags),
        rare=tuple(found.record(run.tallies[name]) for name, found in rare.items()),
        precision=growth.record() if growth else None,
        audits=audits,
        timing=Timing(
            seconds=dict(run.seconds),
            total_seconds=round(sum(run.seconds.values()), 3),
            images_per_second=round(classifier.eager_images_per_second, 1),
        ),
        environment=Environment(
            date=datetime.now(UTC).date().isoformat(),
            python=platform.python_version(),
            torch=str(torch.__version__),
            numpy=np.__version__,
            platform=platform.platform(),
            device=str(classifier.device),
            threads=torch.get_num_threads(),
            micro_batch=classifier.micro_batch,
            form=classifier.speedups,
            engine=classifier.engine,
            rough_gradients=None
            if run.searching is None
            else run.searching.fast.bfloat16_copy is not None,
        ),
    )
    per_input = per_input_of(run.tallies, settings.confidence)
    if show:
        sliced = measure_slices(report, run.data, run.tallies)
        report = report.model_copy(update={"slices": sliced})
    evidence = _collect_evidence(run, ready) if show else None
    if run.folder:
        run.folder.write(report, per_input, evidence)
    return report.with_inputs(per_input, evidence)


def _at_other_radii(run: AssessmentRun, sources: Sequence[Source]) -> list[Number]:
    """Measure all sources that have a budget at the other radii of the settings."""
    rows: list[Number] = []
    for text in run.settings.radii:
        other = run.budget.at(text)
        for source in sources:
            if source.budget is None:
                continue
            try:
                planned = _plan_at(run, source, other)
                rows += [
                    row.model_copy(update={"tally": None})
                    for row in run.read(planned.source, run.tally(planned))
                    if row.metric is source.metric
                ]
            except RunStopped:
                raise
            except Exception as error:  # the others' results are kept
                rows.append(run.failed(source, error).with_subject(radius=other.radius))
    return apply_supersets(rows, sources)


def _unfinished(growth: Growth | None, rare: dict[str, Followed]) -> list[Flag]:
    """Return flags for unmet requests: precision not reached, rare failures not all followed."""
    found = []
    if growth is not None and (shortfall := growth.shortfall()):
        found.append(flag(PRECISION, shortfall))
    for name, each in rare.items():
        followed = len(each.rare.positions)
        if followed < each.unbroken:
            words = f"{followed:,} of {each.unbroken:,} inputs without a failure were followed"
            found.append(flag(RARE_PARTLY, words, name))
    return found


def _collect_evidence(run: AssessmentRun, sources: Sequence[Source]) -> Evidence | None:
    """Draw what a page shows, with the variant of searches, so that every run draws the same."""
    try:
        fixed = copy.copy(run)
        fixed.classifier = run.fixed
        learned = [each.with_known(None) for each in run.learned]
        return collect_evidence(fixed, sources, learned)
    except Exception:
        logger.warning("the page will show numbers only")
        logger.debug("nothing is collected", exc_info=True)
        return None
