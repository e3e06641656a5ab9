"""One run: measure every source on the same inputs, read the tallies, write the report."""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.tally import BoolArray, Claim, Evaluate, Metric, Tally
from nppr.data import Split, short_digests
from nppr.doctor import (
    audit_flags,
    check_ladder,
    check_model,
    check_results,
    effort_flags,
    flag,
    grade,
    overlap_flags,
    result_flags,
)
from nppr.doctor.flags import (
    BY_SCORES,
    FITTED_ON,
    NO_FEATURES,
    NORMALISATION,
    PRECISION,
    RARE_PARTLY,
)
from nppr.doctor.result_checks import FEWEST_INPUTS, accuracy_beside_chance, is_guessing
from nppr.errors import ClassifierError, NpprError, RunStopped
from nppr.measuring.measurement import ProgressCallback, measure, probe
from nppr.models import in_fixed_form, within_memory
from nppr.report import Report, per_input_of
from nppr.report.evidence import Evidence
from nppr.report.model import (
    MERGED,
    SCHEMA_VERSION,
    AuditRecord,
    Environment,
    Flag,
    Result,
    Timing,
)
from nppr.run.collect_evidence import collect
from nppr.run.joint_bounds import with_supersets
from nppr.run.ladder import describe_rungs, per_input_noise
from nppr.run.lowest_rows import lowest_rows
from nppr.run.precision import Growth, grow
from nppr.run.prepare import Setup
from nppr.run.session import Session, result_of
from nppr.run.slice_results import slice_results
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import NoiseSearch
from nppr.sources import NPPR, Clean, Source, references, share_error
from nppr.sources.per_input_noise import PerInput
from nppr.statistics.estimates import (
    allow_for_audit,
    estimate_accuracy,
    estimate_adversarial,
    estimate_probabilistic,
    merge_attacks,
)
from nppr.system.specs import names_code

if TYPE_CHECKING:
    from nppr.run.rare_failures import Followed

logger = logging.getLogger(__name__)

FIRST = 256
"""Inputs whose clean answers show whether a classifier guesses, if a search comes before the others."""


def complete_run(
    setup: Setup,
    sources: Sequence[Source],
    learned: Sequence[LearnedNoise] = (),
    search: NoiseSearch | None = None,
    progress: ProgressCallback | None = None,
    *,
    examine: bool = True,
    anyway: bool = False,
) -> Report:
    """Measure all sources; one that fails gets a row that states why, and the others go on.

    Learned noise that is given, and what `search` finds, comes last. Without `examine` the classifier
    is not checked beforehand and nothing is collected for a page, as for the nodes of a study. A
    classifier that guesses is measured only `anyway`.
    """
    session = Session(setup.settings, setup.data, setup.classifier, setup.folder, progress)
    # First: unreadable data must not cost a finished run.
    with within_memory(setup.classifier.original.name):
        flags = _examine(setup, search) if examine else []
    judged = examine and not anyway and not setup.finished
    failed: list[Result] = []
    growth = None
    search_settings = search.settings if search else None
    if setup.settings.precision is not None:
        if judged:  # the search must not come first
            _require_better_than_guessing(setup, _measure_some_clean(setup), flags)
        found, failed = _run_search(session, search)
        learned, search = [*learned, *found], None
        drawn = [*sources, *(each.source for each in learned)]
        if search_settings is not None:
            drawn += per_input_noise(search_settings, learned)
        winners = {each.winner for each in learned}
        drawn += [noise for noise in references(setup.budget) if noise.name in winners]
        growth = grow(session, drawn)
    ordered = share_error(sources)
    if setup.settings.only_merged:
        ordered.sort(key=lambda source: source.cost)
    with within_memory(setup.classifier.original.name):
        run, features = _measure_clean(session, keep=_sees_features(setup, learned, search))
    if judged:
        _require_better_than_guessing(setup, run.clean, flags)
    ready = [session.fitted(source) for source in ordered]
    for source in ready:
        run.add(source)
    found, more = _run_search(session, search)
    run.results += [*failed, *more]
    for each in [*learned, *found]:
        seen = each if each.source.feature_model else each.with_known(features)
        run.add_learned(seen, setup.record.classifier.fingerprint)
    if search_settings is not None:
        run.own = per_input_noise(search_settings, run.learned)
        for noise in run.own:
            run.add(noise)
    found_before = [*learned, *(found if search is not None and search.given else ())]
    reused = _reused(found_before, session.data.evaluate)
    for name, count in reused.items():
        flags.append(flag(FITTED_ON, f"{count:,} of the evaluated inputs", name))
    run.results = [
        row.model_copy(update={"claim": Claim.TEST_SET})
        if (row.tally in reused or row.reference in reused) and row.claim is Claim.POPULATION
        else row
        for row in run.results
    ]
    return _finish(setup, run, ordered, ready, flags, growth, show=examine)


def _measure_some_clean(setup: Setup) -> Tally[Evaluate]:
    """The clean answers for the first inputs."""
    split = setup.data.evaluate
    some = replace(split, indices=split.indices[:FIRST], labels=split.labels[:FIRST])
    return measure(Clean(), setup.classifier, some, clean_correct=np.ones(len(some), bool))


def _require_better_than_guessing(
    setup: Setup, clean: Tally[Evaluate], flags: Sequence[Flag]
) -> None:
    """Raise `ClassifierError` for a classifier whose robustness would mean nothing."""
    classes = setup.data.classes
    if len(clean.correct) < FEWEST_INPUTS or not is_guessing(clean, classes):
        return  # a few inputs show little; flags say so
    found = accuracy_beside_chance(estimate_accuracy(clean, setup.settings.confidence), classes)
    causes = [each.message.partition(": ")[0] for each in flags if each.id == NORMALISATION]
    known = setup.record.classifier
    if known.weights is None and names_code(known.name):
        causes.append("No weights were given")
    raise ClassifierError(
        f"`model` must be better than guessing, got {found} on {len(clean.correct):,} inputs."
        f" {''.join(f'{cause}. ' for cause in causes)}Check --weights, --mean and --std, and the class"
        " order, or add --anyway to measure it as it is."
    )


def _examine(setup: Setup, search: NoiseSearch | None) -> list[Flag]:
    """What is known of data and classifier before anything is measured."""
    reference, seed = setup.classifier.original, setup.settings.seed
    flags = [*overlap_flags(setup.data), *check_model(reference, setup.data, seed=seed)]
    if search is not None and search.settings.recipe.scores:
        flags.append(flag(BY_SCORES, source=NPPR))
    elif search is not None and setup.lacks_features(setup.record.settings.search):
        flags.append(flag(NO_FEATURES, source=NPPR))
    return flags


def _run_search(
    session: Session, search: NoiseSearch | None
) -> tuple[list[LearnedNoise], list[Result]]:
    """What a search finds, kept in the run's folder, or the row that states why it failed."""
    if search is None:
        return [], []
    try:
        with session.timed("fit"):
            found = search.run()
    except RunStopped:
        raise
    except Exception as error:
        return [], [session.failed(NPPR, Metric.NPPR, error)]
    if session.folder:
        session.folder.save_learned(found)
    return found, []


def _reused(learned: Sequence[LearnedNoise], split: Split[Evaluate]) -> dict[str, int]:
    """How many of the evaluated inputs learned noise was fitted or selected on, by its name."""
    if not learned:
        return {}
    evaluated = short_digests(split)
    counts = {each.source.name: int(np.isin(evaluated, each.seen).sum()) for each in learned}
    return {name: count for name, count in counts.items() if count}


def _sees_features(
    setup: Setup, learned: Sequence[LearnedNoise], search: NoiseSearch | None
) -> bool:
    """Whether learned noise will see features of this classifier, which has some."""
    sees = any(
        each.source.distribution.features and not each.source.feature_model for each in learned
    )
    if search is not None and search.feature_model is None:
        sees = sees or search.settings.family.dependency.sees_input
    return sees and setup.record.classifier.features is not None


def _measure_clean(
    session: Session, *, keep: bool
) -> tuple[_Measurements, dict[int, Tensor] | None]:
    """The measurement of the clean inputs, and their features where learned noise needs them."""
    split = session.data.evaluate
    everything = np.ones(len(split), bool)
    features: dict[int, Tensor] | None = {} if keep else None
    source = Clean()
    clean = session.measure(source, everything, keep=features)
    if features is not None and len(features) < len(everything):  # it was resumed
        quantise = session.settings.quantise
        measure(source, session.classifier, split, clean_correct=everything, quantise=quantise,
                keep=features)  # fmt: skip
    rows = session.read(source, clean, clean)
    return _Measurements(session, clean, clean.correct == 1, rows), features


@dataclass
class _Measurements:
    """All tallies and rows so far; `inside` are the sources measured that stay in the budget."""

    session: Session
    clean: Tally[Evaluate]
    clean_correct: BoolArray
    results: list[Result]
    tallies: dict[str, Tally[Evaluate]] = field(default_factory=dict)
    inside: list[Source] = field(default_factory=list)
    learned: list[LearnedNoise] = field(default_factory=list)
    own: list[PerInput] = field(default_factory=list)

    def add(self, source: Source) -> None:
        """Measure a source."""
        settings = self.session.settings
        try:
            tally = self.session.measure(source, self.clean_correct, skip=self._broken(source))
            if not (settings.only_merged and source.metric is Metric.AR):
                self.results += self.session.read(source, tally, self.clean)
            self.tallies[source.name] = tally
            if source.budget is not None:
                self.inside.append(source)
        except RunStopped:
            raise
        except Exception as error:  # whatever a source does, the others' results are kept
            self.results.append(self.session.failed(source, source.metric, error))

    def add_learned(self, learned: LearnedNoise, fingerprint: str) -> None:
        """Measure learned noise, on the classifier of this fingerprint."""
        self.learned.append(learned)
        self.add(learned.source)
        # On another classifier or at another radius nothing was compared on the select split.
        if learned.was_compared(fingerprint) and learned.source.name in self.tallies:
            self._add_with_references(learned)

    def _add_with_references(self, learned: LearnedNoise) -> None:
        """NPPR of the family and the reference noises together: that of the lowest on select."""
        settings = self.session.settings
        source, measured = learned.source, learned.source.name
        if learned.winner:
            noise = next(each for each in references(source.budget) if each.name == learned.winner)
            measured = noise.name
            tally = self.tallies.get(measured) or self.session.measure(noise, self.clean_correct)
        else:
            tally = self.tallies[measured]
        found = estimate_probabilistic(tally, settings.confidence, Metric.NPPR, settings.seed)
        for row in self.session.after_stopping(found, tally):
            result = result_of(source, row, with_references=True)
            known = measured if measured in self.tallies else None
            self.results.append(result.model_copy(update={"tally": known}))

    def merge(self) -> None:
        """AR over all sources of the budget, if there is an attack and something to merge.

        Screened counts take no part: one wrong decision would break an input.
        """
        settings = self.session.settings
        exact = [each for each in self.inside if self.tallies[each.name].is_exact]
        attacked = any(source.metric is Metric.AR for source in exact)
        if not attacked or not (len(exact) > 1 or settings.only_merged):
            return
        tally = merge_attacks([self.tallies[source.name] for source in exact])
        try:
            found = estimate_adversarial(tally, settings.confidence)
            budget = self.inside[0].budget
            radius = budget.radius if budget else None
            self.results.append(Result(source=MERGED, radius=radius, **vars(found)))
        except NpprError as error:  # no input is clean-correct
            self.results.append(self.session.failed(MERGED, Metric.AR, error))

    def _broken(self, source: Source) -> BoolArray | None:
        """Inputs that need not be attacked, where only merged AR is wanted."""
        if not self.session.settings.only_merged or source.metric is not Metric.AR:
            return None
        broken = ~self.clean_correct
        for each in self.inside:
            if self.tallies[each.name].is_exact:
                broken = broken | ~self.tallies[each.name].unbroken
        return broken


def _finish(
    setup: Setup,
    run: _Measurements,
    given: Sequence[Source],
    ready: Sequence[Source],
    flags: Sequence[Flag],
    growth: Growth | None,
    *,
    show: bool,
) -> Report:
    """What is read off all measurements together, and the report, kept in the run's folder."""
    session, record = run.session, setup.record
    if growth:
        record = record.model_copy(update={"data": growth.describe(record.data)})
    noises: list[Source] = [*(each.source for each in run.learned), *run.own]
    sources = [*ready, *noises]
    run.merge()
    run.results += lowest_rows(run.results, run.tallies, session.settings.seed, session.stopped)
    rare: dict[str, Followed] = {}
    if session.settings.rare_calls is not None:
        from nppr.run.rare_failures import follow_rare_failures  # few runs need it

        rare, rows = follow_rare_failures(session, sources, run.tallies)
        run.results += rows
    run.results = with_supersets(run.results, sources)
    learned = [each.describe() for each in run.learned]
    measured = [source for source in sources if source.name in run.tallies]
    ladder = describe_rungs(session, run.learned, run.own, ready, run.tallies, run.clean_correct)
    settings, classes = session.settings, session.data.classes
    audits = _describe_audits(run.tallies, settings.confidence)
    flags = [
        *flags,
        *result_flags(run.results),
        *check_results(
            run.results, run.tallies, measured, learned, run.clean, classes, settings.confidence
        ),
        *check_ladder(
            ladder,
            run.tallies,
            {each.source.name: each.record.search.settings for each in run.learned},
        ),
        *_unfinished(growth, rare),
        *audit_flags(audits),
        *effort_flags(settings.effort),
    ]
    classifier = session.classifier
    report = Report(
        schema_version=SCHEMA_VERSION,
        **dict(record),
        results=tuple(run.results),
        other_radii=tuple(_at_other_radii(session, [*given, *noises], run.clean, setup.budget)),
        distributions=tuple(learned),
        ladder=tuple(ladder),
        flags=tuple(flags),
        grade=grade(flags),
        rare=tuple(found.record(run.tallies[name]) for name, found in rare.items()),
        precision=growth.record() if growth else None,
        audits=audits,
        timing=Timing(
            seconds=dict(session.seconds),
            total_seconds=round(sum(session.seconds.values()), 3),
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
            if setup.searching is None
            else setup.searching.fast.bfloat16_copy is not None,
        ),
    )
    per_input = per_input_of(run.tallies, settings.confidence)
    if show:
        sliced = slice_results(report, session.data, run.tallies)
        report = report.model_copy(update={"slices": sliced})
    evidence = _collect_evidence(run, ready, setup.budget) if show else None
    if session.folder:
        session.folder.write(report, per_input, evidence)
    return report.with_inputs(per_input, evidence)


def _describe_audits(
    tallies: Mapping[str, Tally[Evaluate]], confidence: float
) -> tuple[AuditRecord, ...]:
    """What the audit of every screened source found, and by how much it widens intervals."""
    found = []
    for name, tally in tallies.items():
        if tally.audit is not None:
            inputs = max(1, int(tally.clean_correct.sum()))
            widened = allow_for_audit(tally, confidence).of_mean(inputs)
            found.append(AuditRecord(source=name, widened_by=widened, **vars(tally.audit)))
    return tuple(found)


def _at_other_radii(
    session: Session, sources: Sequence[Source], clean: Tally[Evaluate], budget: Budget
) -> list[Result]:
    """The results of all sources that have a budget, at the other radii of the settings.

    Learned noise is scaled to the radius and not fitted again; what is fitted to a radius is.
    """
    rows: list[Result] = []
    for text in session.settings.radii:
        other = budget.at(text)
        for source in sources:
            if source.budget is None:
                continue
            try:
                moved = session.fitted(source.at(other))
                stored = f"{source.name}@{other.radius!r}"
                tally = session.measure(moved, clean.correct == 1, stored=stored)
                found = session.read(moved, tally, clean)
                rows += [
                    row.model_copy(update={"tally": None})
                    for row in found
                    if row.metric is source.metric
                ]
            except RunStopped:
                raise
            except Exception as error:  # the others' results are kept
                row = session.failed(source, source.metric, error)
                rows.append(row.model_copy(update={"radius": other.radius}))
    return with_supersets(rows, sources)


def _unfinished(growth: Growth | None, rare: dict[str, Followed]) -> list[Flag]:
    """What was asked for and could not be had: a precision, all inputs followed."""
    found = []
    if growth is not None and (shortfall := growth.shortfall()):
        found.append(flag(PRECISION, shortfall))
    for name, each in rare.items():
        followed = len(each.rare.positions)
        if followed < each.unbroken:
            words = f"{followed:,} of {each.unbroken:,} inputs without a failure were followed"
            found.append(flag(RARE_PARTLY, words, name))
    return found


def _collect_evidence(
    run: _Measurements, sources: Sequence[Source], budget: Budget
) -> Evidence | None:
    """What a page shows beside numbers; a failure here never costs the run.

    It is drawn by the form of the classifier that searches use, whatever the clock prefers, and with
    features of that form: so it is the same in every run and after an interruption.
    """
    session = run.session
    try:
        classifier = in_fixed_form(session.classifier, probe(session.data.evaluate), exact=True)
        fixed = replace(session, classifier=classifier)
        learned = [each.with_known(None) for each in run.learned]
        return collect(fixed, run.tallies, run.clean, sources, learned, budget)
    except Exception:
        logger.warning("the page will show numbers only")
        logger.debug("nothing is collected", exc_info=True)
        return None
