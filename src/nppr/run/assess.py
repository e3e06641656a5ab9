"""The two calls of the library: `assess` measures a classifier, `learn` only learns its worst noise.

The plan of a run is shown before it begins: the passes through the classifier, and their time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from nppr.core.budget import Budget
from nppr.core.draw_count import FEWEST_DRAWS
from nppr.core.random_draws import DRAWS_PER_BLOCK
from nppr.core.task import Task
from nppr.data import ClassOrder, Data, DataSpec, RangeSpec
from nppr.errors import BudgetError, DistributionError, SpecError
from nppr.models import ModelSpec, PreparedClassifier
from nppr.report import Report
from nppr.run.assessment_run import AssessmentRun
from nppr.run.complete_run import complete_run
from nppr.run.ladder import CHECKED_INPUTS, SAME_PATTERN_DRAWS
from nppr.run.precision import DRAWN
from nppr.run.progress import Plan, ShowProgress, has_viewer, progress_bars
from nppr.run.resolve import Resolved, require_budget, resolve
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import (
    MOST_JUDGE_DRAWS,
    SELECT_DRAWS,
    SELECT_INPUTS,
    NoiseSearch,
    fit_inputs,
)
from nppr.search.search_settings import SCORES, SearchSettings, Stage, walk
from nppr.settings import KeywordsT, Measure, Run, Search, refuse_misplaced
from nppr.sources import NPPR, Source, check_unique, default_sources, parse_sources, split_search
from nppr.sources.base import PASSES_PER_CALL
from nppr.sources.noise_samples import NoiseSamples
from nppr.system.specs import EAGER

SCORED = 1.25
"""Forward passes that a call of a search without gradients takes, with the ranking of its answers."""

ROUGH = 0.7
"""Time of a call with rough gradients over that of one with exact ones."""

JUDGED_BESIDES = 5
"""Candidates of a stage beside its components: the edge, half of the calls, parents, fixed noise."""

EXAMINED, ATTACKED, SHOWN = 32, 16, 12
"""Inputs that are examined before a run, attacked for that, and drawn again for the page."""

STEP_SECONDS = 0.008
"""Seconds of a step of a search beside its passes: making noise, and gradients in its parameters."""

ONCE, EACH = 0.4, 0.1
"""Seconds of what a run does once, and for every source: statistics, flags, files."""


@refuse_misplaced
def assess(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    budget: Budget | None = None,
    *,
    sources: str | Sequence[str | Source] | None = None,
    search: Search | SearchSettings | str | None = None,
    measure: Measure | None = None,
    run: Run | None = None,
    effort: str | None = None,
    distributions: Sequence[LearnedNoise] = (),
    feature_model: ModelSpec | None = None,
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    class_order: ClassOrder | str | Path | None = None,
    progress: ShowProgress | bool | None = None,
) -> Report:
    """Assess a classifier under every source, on the same inputs and seed.

    `model` is a module, a callable, a name (docs/models.md) or a `Classifier`, which also holds a
    normalisation; `data` are tensors, a name or path (docs/data.md), a PyTorch data set or a `Data`.
    `budget` must be stated, except for the digits demo. `sources` are names with options
    (docs/definitions.md), in one text or in a list, which may also hold a `CustomAttack` or
    `CustomNoise`. Data that come in one split, such as a pair of tensors, are divided: 50 % to fit,
    20 % to select, 30 % to evaluate.

    `search` states which noise is searched for, and how: `Search(dependency="label")`, the name of a
    method, or settings that state all of it (`nppr.default_settings`, `nppr.paper_settings`).
    `measure` states how much is measured: `Measure(draws=200, inputs=1000)`. `run` states where the run
    is kept and how it is computed: `Run(out="runs/mine", resume=True)`. `effort` is quick, normal or
    thorough; it sets calls, draws and seeds that you do not state.

    `distributions` were learned before. They are measured instead of a search. With the search method
    `scores` they are compared with what it finds, and kept where they are lower. `feature_model` gives
    the features that input-dependent noise may see, by default `model` itself. `task` says what a
    correct answer is; `input_range` is the range of inputs that are not images (docs/models.md,
    docs/data.md). `class_order` is the classes of the data in the order of the classifier's outputs: a
    list, a mapping from name to output, or a file of them.

    On a terminal and in a notebook bars show how far the assessment is. `progress=False` turns them
    off. A function is called instead: with a `Plan` before the work begins, then with the `FitProgress`
    of searches and the `Progress` of measurements.

    >>> report = assess(sources="uniform", measure=Measure(inputs=50, draws=10))
    >>> [number.metric.value for number in report.numbers][:3]
    ['accuracy', 'PR', 'normalised_accuracy']
    """
    begun = time.perf_counter()
    settings = with_effort(require_group(Measure, "measure", measure), effort)
    resolved = resolve(
        model, data, settings, budget, feature_model=feature_model, task=require_task(task),
        input_range=input_range, class_order=class_order,
    )  # fmt: skip
    return assess_resolved(
        resolved, settings, sources=sources, search=search, run=run, distributions=distributions,
        progress=progress, begun=begun,
    )  # fmt: skip


def assess_resolved(
    resolved: Resolved,
    settings: Measure,
    *,
    sources: str | Sequence[str | Source] | None = None,
    search: Search | SearchSettings | str | None = None,
    run: Run | None = None,
    distributions: Sequence[LearnedNoise] = (),
    progress: ShowProgress | bool | None = None,
    begun: float | None = None,
) -> Report:
    """Assess a classifier and data that are loaded; `begun` is when the clock of the plan started."""
    begun = time.perf_counter() if begun is None else begun
    run = require_group(Run, "run", run)
    data, budget = resolved.data, resolved.required_budget()
    settings = settings.of_inputs(len(data.evaluate))
    for radius in settings.radii:
        require_budget(budget.at(radius), data.name, "radii")
    settled_search = _search_settings(search, len(data.fit), settings.effort)
    rivals = distributions if settled_search.method == SCORES else ()
    searched, chosen = choose_sources(sources, budget, distributions, replace_search=not rivals)
    if settings.noise_samples is not None:
        frames = NoiseSamples.from_frames(
            settings.noise_samples, data, budget, confidence=settings.confidence,
            one_radius=not settings.radii,
        )  # fmt: skip
        chosen.append(frames)
    fitted = [NPPR] * searched + [each.name for each in chosen if each.needs_fit_split]
    if settings.evaluate_all and fitted:
        raise SpecError(
            f"`evaluate-all` must be given with sources that need no fit, got {fitted[0]}, which is"
            " fitted on inputs that are not evaluated. Example: sources uniform,pgd"
        )
    given = distributions
    if rivals and searched:
        if all(each.source.distribution.family.dependency.sees_input for each in rivals):
            found = ", ".join(each.source.name for each in rivals)
            raise DistributionError(
                "`distribution` must hold noise that sees no features for a search by scores, got"
                f" {found}. Fit it with --dependency label."
            )
        distributions = ()
    followed = searched or distributions or any(each.moved_by_splitting for each in chosen)
    if settings.rare_calls is not None and not followed:
        raise SpecError(
            "`rare` must be given with noise that splitting can follow, such as uniform, nppr or bound,"
            f" got {', '.join(source.name for source in chosen)}."
        )
    drawn = searched or distributions or any(each.metric in DRAWN for each in chosen)
    if settings.precision is not None and not drawn:
        raise SpecError(
            "`precision` must be given with a source that draws, got none. Example: --sources uniform"
        )
    planned = settled_search if searched else None
    measured = [*chosen, *(each.source for each in distributions)]
    setup = AssessmentRun.open(
        resolved, budget, settings, sources=chosen, search=planned, distributions=given, run=run
    )
    with setup, _shown_progress(progress) as show:
        setup.progress = show
        finder = setup.search(planned, rivals) if planned else None
        if show is not None:
            show(_plan(setup, measured, finder, time.perf_counter() - begun))
        return complete_run(setup, chosen, distributions, finder, anyway=run.anyway)


def _shown_progress(
    progress: ShowProgress | bool | None,
) -> AbstractContextManager[ShowProgress | None]:
    """Return the callback that was given, else that of bars if somebody watches."""
    if callable(progress):
        return nullcontext(progress)
    return progress_bars(quiet=progress is False or not (progress or has_viewer()))


def require_group(kind: type[KeywordsT], argument: str, given: KeywordsT | None) -> KeywordsT:
    """Return a group of settings, which must be of its type."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        name = kind.__name__
        raise SpecError(
            f"`{argument}` must be nppr.{name}(...), got {type(given).__name__}."
            f" Example: {argument}=nppr.{name}()"
        )
    return given


def require_task(task: Task | None) -> Task | None:
    """Return the task, which must be one."""
    if task is not None and not isinstance(task, Task):
        raise SpecError(
            f"`task` must be a Task, got {type(task).__name__}. Example: nppr.Task(correct=function)"
        )
    return task


def with_effort(measure: Measure, effort: str | None) -> Measure:
    """Return the settings with the effort of the call."""
    if effort is None:
        return measure
    if measure.is_typed("effort") and measure.effort != effort:
        raise SpecError(
            f"`effort` must be given once, got {effort!r} and measure=Measure(effort="
            f"{measure.effort!r})."
        )
    return measure.with_(effort=effort)


def _search_settings(
    search: Search | SearchSettings | str | None, inputs: int, effort: str
) -> SearchSettings:
    """Return all settings of a search, from a group, the name of a method, or all of them."""
    if isinstance(search, SearchSettings):
        return search
    if isinstance(search, str):
        search = Search(method=search)
    return require_group(Search, "search", search).resolve(inputs, effort)


@refuse_misplaced
def learn(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    budget: Budget | None = None,
    *,
    search: Search | SearchSettings | str | None = None,
    measure: Measure | None = None,
    run: Run | None = None,
    effort: str | None = None,
    feature_model: ModelSpec | None = None,
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    class_order: ClassOrder | str | Path | None = None,
    progress: ShowProgress | bool | None = None,
) -> list[LearnedNoise]:
    """Learn the worst admissible noise of a classifier on the fit and select splits of the data.

    The arguments are those of `assess`, which measures the result on the evaluate split:
    `assess(model, data, distributions=learn(model, data))`. Of `measure` it uses `fit_inputs`,
    `select_inputs`, `seed`, `quantise` and `effort`. With `Run(out=...)` the noise is written there.
    """
    settings = with_effort(require_group(Measure, "measure", measure), effort)
    resolved = resolve(
        model, data, settings, budget, feature_model=feature_model, task=require_task(task),
        input_range=input_range, class_order=class_order,
    )  # fmt: skip
    return learn_resolved(resolved, settings, search=search, run=run, progress=progress)


def learn_resolved(
    resolved: Resolved,
    settings: Measure,
    *,
    search: Search | SearchSettings | str | None = None,
    run: Run | None = None,
    progress: ShowProgress | bool | None = None,
) -> list[LearnedNoise]:
    """Learn the worst admissible noise of a classifier and data that are loaded."""
    settled = _search_settings(search, len(resolved.data.fit), settings.effort)
    setup = AssessmentRun.open(
        resolved, resolved.required_budget(), settings, search=settled,
        run=require_group(Run, "run", run),
    )  # fmt: skip
    with setup, _shown_progress(progress) as show:
        setup.progress = show
        found = setup.search(settled).run()
        if setup.folder:
            setup.folder.save_learned(found)
    return found


def choose_sources(
    sources: str | Sequence[str | Source] | None,
    budget: Budget,
    distributions: Sequence[LearnedNoise] = (),
    *,
    replace_search: bool = True,
) -> tuple[bool, list[Source]]:
    """Return whether to search for NPPR, which given noise may replace, and the other sources."""
    if isinstance(sources, Source):
        raise SpecError(
            f"`sources` must be a text or a list, got {type(sources).__name__}."
            f" Example: sources=[{type(sources).__name__}(...)]"
        )
    listed = default_sources(budget) if sources is None else sources
    searched, given = False, list[Source]()
    for each in [listed] if isinstance(listed, str) else listed:
        if not isinstance(each, str):
            given.append(each)
            continue
        found, rest = split_search(each, budget)
        if searched and found:
            raise SpecError(f"`sources` must be different, got {NPPR!r} twice.")
        searched = searched or found
        given += parse_sources(rest, budget) if rest else []
    searched = searched and not (distributions and replace_search)
    if given or not (searched or distributions):
        check_unique(given)
    for source in (*given, *(each.source for each in distributions)):
        if budget.transform is not None and not source.transforms:
            raise BudgetError(
                f"`sources` must fit the budget, got {source.name!r}, which perturbs pixels. A"
                " transformation of your own is a CustomTransform."
            )
        if source.budget is not None and source.budget != budget:
            raise BudgetError(
                f"`budget` must be that of all sources, {source.name!r} has {source.budget}"
                f" instead of {budget}."
            )
    return searched, given


def _plan(
    setup: AssessmentRun, sources: Sequence[Source], finder: NoiseSearch | None, elapsed: float
) -> Plan:
    """Return the plan of a run, `elapsed` seconds after the call began."""
    search = finder.settings if finder else None
    names = [source.name for source in sources]
    warning = None
    if search is not None:
        names = [*(each.name_noise() for each in search.sets), *names]
        if search.is_short:
            warning = (
                f"--fit-calls {search.calls:,} is too few for this search, which needs"
                f" {search.needed_calls:,}: NPPR will be far too high"
            )
    classifier = setup.classifier
    work = count_passes(setup.data, setup.settings, sources, search)
    workers = setup.pool.slots if setup.pool else 1
    return Plan(
        finished=setup.folder.path if setup.folder and setup.finished else None,
        notes=setup.data.notes,
        inputs=len(setup.data.evaluate),
        fit_inputs=len(setup.data.fit),
        select_inputs=len(setup.data.select),
        sources=tuple(names),
        micro_batch=classifier.micro_batch,
        form=(*classifier.speedups, *([] if classifier.engine == EAGER else [classifier.engine])),
        seconds=elapsed + work.seconds(classifier, finder.classifier if finder else None, workers),
        warning=warning,
    )


@dataclass(frozen=True)
class Work:
    """Forward passes of a run; a backward pass counts as two."""

    plain: float
    """Passes of measurements without gradients."""
    guided: float
    """Passes of sources that take gradients."""
    fits: float
    judged: float
    """Passes without gradients by which a search chooses."""
    steps: int
    sources: int

    def seconds(
        self, classifier: PreparedClassifier, search: PreparedClassifier | None, workers: int = 1
    ) -> float:
        """Return the seconds with these variants of the classifier; workers share the measuring."""
        search = search or classifier
        rough = 1.0 if search.fast.bfloat16_copy is None else ROUGH
        each = (
            self.plain / classifier.images_per_second / workers
            + self.guided / classifier.eager_images_per_second / workers
            + self.judged / search.images_per_second
            + rough * self.fits / search.eager_images_per_second
        )
        beside = ONCE + EACH * self.sources + STEP_SECONDS * self.steps
        return beside + each


def count_passes(
    data: Data, settings: Measure, sources: Sequence[Source], search: SearchSettings | None
) -> Work:
    """Count the passes of a run; with a wanted precision, the passes of its first round."""
    inputs, draws = len(data.evaluate), settings.draws or FEWEST_DRAWS
    radii = 1 + len(settings.radii)
    plain = float(inputs + (settings.rare_calls or 0))
    # Examining the model takes answers, gradients, and 20 steps of an attack.
    guided = 8.0 * min(inputs, EXAMINED) + 61.0 * min(inputs, ATTACKED)
    plain += min(inputs, SHOWN) * min(draws, DRAWS_PER_BLOCK) * min(3, len(sources))
    for source in sources:
        own = inputs * (source.fixed_draws or draws) * radii
        guided += source.fit_passes(len(data.fit)) + radii * source.search_passes(inputs)
        if source.cost <= 1.25:
            plain += own
        else:
            plain, guided = plain + own, guided + own * (source.cost - 1)
    if search is None:
        return Work(plain, guided, 0.0, 0.0, 0, len(sources))
    scored = search.recipe.scores
    per_call = SCORED if scored else PASSES_PER_CALL
    rungs = len(search.sets)
    plain += inputs * draws * rungs * radii
    stages = walk(search, data.classes, data.shape)
    few = min(draws, SAME_PATTERN_DRAWS)
    plain += inputs * few * sum(0 < stage.family.floor < 1 for stage in stages)
    if search.per_input_calls:
        searched = inputs * radii + 2 * min(inputs, CHECKED_INPUTS)
        guided += len(search.floors) * searched * search.per_input_calls * PASSES_PER_CALL
    fits = search.seeds * search.total_calls * per_call
    fits += fit_inputs(len(data.fit), search.calls) + min(len(data.select), SELECT_INPUTS)
    judged = search.seeds * _judged(data, search, stages)
    steps = search.seeds * sum(stage.steps for stage in stages)
    return Work(plain, guided, fits, judged, steps, len(sources) + rungs)


def _judged(data: Data, search: SearchSettings, stages: Sequence[Stage]) -> float:
    """Count the forward passes by which all candidates are judged on the select split."""
    if not search.walks:
        return 0.0
    inputs = max(1, min(len(data.select), SELECT_INPUTS))
    each = inputs * min(MOST_JUDGE_DRAWS, -(-SELECT_DRAWS // inputs))
    return float(sum(each * (stage.family.components + JUDGED_BESIDES) for stage in stages))
