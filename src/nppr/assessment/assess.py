"""The two calls of the library: `assess` measures a classifier, `learn` only learns its worst noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nppr.assessment.precision import DRAWN
from nppr.assessment.prepare import Setup, prepare_run
from nppr.assessment.run import complete_run
from nppr.assessment.time_estimate import count_passes
from nppr.budget import Budget
from nppr.classifiers import ModelSpec
from nppr.data import (
    ClassOrder,
    DataSpec,
    RangeSpec,
    all_evaluated,
    load_data,
    with_class_order,
)
from nppr.errors import BudgetError, DistributionError, SpecError
from nppr.measurement import ProgressCallback
from nppr.noise.family import Dependency
from nppr.options import SearchOptions, checked_options
from nppr.report import Report
from nppr.run_settings import RunSettings, default_draws, require_budget
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import Search
from nppr.search.search_settings import SCORES, SearchSettings
from nppr.sources import NPPR, Source, check_unique, default_sources, parse_sources, split_search
from nppr.sources.learned import learned_name
from nppr.specs import EAGER
from nppr.task import Task


@dataclass(frozen=True)
class Plan:
    """What is about to run."""

    inputs: int
    fit_inputs: int
    select_inputs: int
    sources: tuple[str, ...]
    micro_batch: int
    form: tuple[str, ...]
    seconds: float
    """Of the whole run, with what it took to prepare it."""
    warning: str | None = None
    finished: Path | None = None
    """The folder of this run where it was finished before: it is read instead of computed."""
    notes: tuple[str, ...] = ()


def assess(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    *,
    budget: Budget | None = None,
    sources: str | Sequence[str | Source] | None = None,
    evaluate_all: bool = False,
    class_order: ClassOrder | str | Path | None = None,
    search: SearchSettings | str | None = None,
    preset: str | None = None,
    dependency: Dependency | str | None = None,
    floor: float | Sequence[float] | None = None,
    components: int | None = None,
    covariance: str | None = None,
    upsampler: str | None = None,
    grid: int | None = None,
    latent_dim: int | None = None,
    hidden_dim: int | None = None,
    label_dim: int | None = None,
    min_std: float | None = None,
    loss: str | None = None,
    kappa: float | None = None,
    fit_calls: int | None = None,
    fit_draws: int | None = None,
    fit_seeds: int | None = None,
    per_input_calls: int | None = None,
    distributions: Sequence[LearnedNoise] = (),
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    feature_model: ModelSpec | None = None,
    draws: int | None = None,
    inputs: int | None = None,
    fit_inputs: int | None = None,
    select_inputs: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    quantise: bool = False,
    only_merged: bool = False,
    precision: float | None = None,
    rare_calls: int | None = None,
    radii: Sequence[str | float] = (),
    batch_size: int | None = None,
    engine: str = EAGER,
    anyway: bool = False,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback | bool | None = None,
    on_search: Callable[[FitProgress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Report:
    """Assess a classifier under every source, on the same inputs and seed.

    `model` is a module, a callable, a name (docs/models.md) or a `Classifier`, which also holds a
    normalisation; `data` are tensors, a name or path (docs/data.md), a PyTorch data set or a `Data`.
    `budget` must be stated, except for the digits demo. `sources` are names with options
    (docs/definitions.md), in one text or in a list with sources of your own (`CustomAttack`,
    `CustomNoise`). Data that come in one split, such as a pair of tensors, are divided: 50 % to fit,
    20 % to select, 30 % to evaluate. With `evaluate_all` all of them are evaluated, for sources that
    need no fit. `class_order` is the classes of the data in the order of the classifier's outputs: a
    list, a mapping from name to output, or a file of them.

    The arguments from `preset` to `per_input_calls` are the options of `nppr assess --help`, panels
    Noise and Search; `search` is its method (gradients, scores or auto), or settings that state all of
    it (`nppr.default_settings`). `distributions` were learned before: they are measured instead of a
    search, or, with the search method `scores`, compared with what it finds and kept where they are
    lower. `task` says what a correct answer is, `input_range` in which range inputs lie that are no
    images (docs/models.md, docs/data.md). `feature_model` gives the features that input-dependent noise
    may see, by default `model` itself. With `only_merged` attacks skip inputs that are already broken,
    and only AR over all of them is reported. With `out` the run is kept in a folder and can be resumed.

    On a terminal and in a notebook bars show how far it is, unless `progress` is False or `progress` or
    `on_search` is a function, which is called instead.

    `draws` per input are 100 by default, fewer for more than 1,000 inputs, but at least 16. With
    `precision` inputs (up to `inputs`) and draws (from `draws`, by default 16) are added until the
    interval of every PR and NPPR has at most that half-width. With `rare_calls` multilevel splitting
    takes over, within that many calls in all, for inputs without a failure among their draws. Sources
    are measured at the other `radii` too. `engine` is exact (`eager`) or `bfloat16`: audited 16-bit
    floats, on processors that have them. A classifier that hardly beats guessing is an error unless
    `anyway` is given.

    >>> report = assess(inputs=50, draws=10, sources="uniform")
    >>> [row.metric.value for row in report.results][:6]
    ['accuracy', 'PR', 'PR', 'PR', 'PR', 'PR']
    """
    begun = time.perf_counter()
    settings = RunSettings(
        draws=draws,
        engine=engine,
        inputs=inputs,
        fit_inputs=fit_inputs,
        select_inputs=select_inputs,
        confidence=confidence,
        seed=seed,
        quantise=quantise,
        only_merged=only_merged,
        precision=precision,
        rare_calls=rare_calls,
        radii=tuple(radii),
    )
    if task is not None and not isinstance(task, Task):
        raise SpecError(
            f"`task` must be a Task, got {type(task).__name__}. Example: nppr.Task(correct=function)"
        )
    loaded = load_data(data, input_range=input_range, task=task)
    loaded = loaded if class_order is None else with_class_order(loaded, class_order)
    loaded = (all_evaluated(loaded) if evaluate_all else loaded).limit(
        inputs=inputs, fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed
    )
    if draws is None and precision is None:
        settings = replace(settings, draws=default_draws(len(loaded.evaluate)))
    budget = require_budget(budget, loaded.name)
    for radius in settings.radii:
        require_budget(budget.at(radius), loaded.name, "radii")
    settled_search = _search_settings(
        search,
        len(loaded.fit),
        preset=preset,
        dependency=dependency,
        floor=floor,
        components=components,
        covariance=covariance,
        upsampler=upsampler,
        grid=grid,
        latent_dim=latent_dim,
        hidden_dim=hidden_dim,
        label_dim=label_dim,
        min_std=min_std,
        loss=loss,
        kappa=kappa,
        fit_calls=fit_calls,
        fit_draws=fit_draws,
        fit_seeds=fit_seeds,
        per_input_calls=per_input_calls,
    )
    rivals = distributions if settled_search.method == SCORES else ()
    searched, chosen = choose_sources(sources, budget, distributions, replace_search=not rivals)
    fitted = [NPPR] * searched + [each.name for each in chosen if each.needs_fit_split]
    if evaluate_all and fitted:
        raise SpecError(
            f"`evaluate-all` must be given with sources that need no fit, got {fitted[0]}, which is"
            " fitted on inputs that are not evaluated. Example: sources uniform,pgd"
        )
    given = distributions
    if rivals and searched:
        _require_rivals(rivals)
        distributions = ()
    followed = searched or distributions or any(each.moved_by_splitting for each in chosen)
    if rare_calls is not None and not followed:
        raise SpecError(
            "`rare` must be given with noise that splitting can follow, such as uniform, nppr or bound,"
            f" got {', '.join(source.name for source in chosen)}."
        )
    drawn = searched or distributions or any(each.metric in DRAWN for each in chosen)
    if precision is not None and not drawn:
        raise SpecError(
            "`precision` must be given with a source that draws, got none. Example: --sources uniform"
        )
    planned = settled_search if searched else None
    measured = [*chosen, *(each.source for each in distributions)]
    setup = prepare_run(
        model,
        loaded,
        budget,
        settings,
        sources=chosen,
        search=planned,
        distributions=given,
        feature_model=feature_model,
        batch_size=batch_size,
        device=device,
        out=out,
        resume=resume,
        overwrite=overwrite,
    )
    with setup, _shown_progress(progress, on_search) as (on_progress, on_fit):
        finder = setup.search(planned, on_fit, rivals) if planned else None
        if on_plan:
            on_plan(_plan(setup, measured, finder, time.perf_counter() - begun))
        return complete_run(setup, chosen, distributions, finder, on_progress, anyway=anyway)


@contextmanager
def _shown_progress(
    progress: ProgressCallback | bool | None, on_search: Callable[[FitProgress], None] | None
) -> Iterator[tuple[ProgressCallback | None, Callable[[FitProgress], None] | None]]:
    """The callbacks that were given, else those of bars where somebody watches."""
    if callable(progress) or on_search is not None or progress is False:
        yield progress if callable(progress) else None, on_search
        return
    from nppr.progress import has_viewer, progress_bars

    with progress_bars(quiet=not (progress or has_viewer())) as callbacks:
        yield callbacks


def _search_settings(
    search: SearchSettings | str | None, fit_inputs: int, **given: object
) -> SearchSettings:
    """The settings that are given whole, or made of those that are given one by one."""
    given = {name: value for name, value in given.items() if value is not None}
    if isinstance(search, SearchSettings):
        if given:
            raise SpecError(
                f"`search` must be given without {', '.join(f'`{name}`' for name in given)}: it"
                " states them."
            )
        return search
    method = {} if search is None else {"search": search}
    return checked_options(SearchOptions, {**method, **given}).search_settings(fit_inputs)


def learn(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    *,
    budget: Budget | None = None,
    search: SearchSettings | None = None,
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    feature_model: ModelSpec | None = None,
    fit_inputs: int | None = None,
    select_inputs: int | None = None,
    seed: int = 0,
    quantise: bool = False,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_search: Callable[[FitProgress], None] | None = None,
) -> list[LearnedNoise]:
    """Learn the worst admissible noise of a classifier on the fit and select splits of the data.

    Arguments are those of `assess`, which measures what comes out on the evaluate split:
    `assess(model, data, distributions=learn(model, data))`. With `out` the noise is written there.
    """
    settings = RunSettings(
        fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed, quantise=quantise
    )
    loaded = load_data(data, input_range=input_range, task=task).limit(
        fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed
    )
    search = search or SearchSettings()
    setup = prepare_run(
        model,
        loaded,
        require_budget(budget, loaded.name),
        settings,
        search=search,
        feature_model=feature_model,
        batch_size=batch_size,
        device=device,
        out=out,
        resume=resume,
        overwrite=overwrite,
    )
    with setup:
        found = setup.search(search, on_search).run()
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
    """Whether a search for NPPR is asked for, and the other sources.

    Learned noise that is given replaces the search, unless the search is to compare itself with it.
    """
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


def _require_rivals(given: Sequence[LearnedNoise]) -> None:
    """Raise `DistributionError` where a search by scores can use none of the given noise."""
    usable = (Dependency.INDEPENDENT, Dependency.LABEL)
    if not any(each.source.distribution.family.dependency in usable for each in given):
        found = ", ".join(each.source.name for each in given)
        raise DistributionError(
            "`distribution` must hold noise that sees no features for a search by scores, got"
            f" {found}. Fit it with --dependency label."
        )


def _plan(setup: Setup, sources: Sequence[Source], finder: Search | None, elapsed: float) -> Plan:
    """What is about to run, `elapsed` seconds after the call began."""
    search = finder.settings if finder else None
    names = [source.name for source in sources]
    warning = None
    if search is not None:
        rungs = [(rung, floor) for floor in search.floors for rung in search.rungs]
        names = [*(learned_name(rung, floor) for rung, floor in rungs), *names]
        if search.is_short:
            warning = (
                f"--fit-calls {search.calls:,} is too few for this search, which needs"
                f" {search.needed_calls:,}: NPPR will be far too high"
            )
    classifier = setup.classifier
    work = count_passes(setup.data, setup.settings, sources, search)
    return Plan(
        finished=setup.folder.path if setup.folder and setup.finished else None,
        notes=setup.data.notes,
        inputs=len(setup.data.evaluate),
        fit_inputs=len(setup.data.fit),
        select_inputs=len(setup.data.select),
        sources=tuple(names),
        micro_batch=classifier.micro_batch,
        form=(*classifier.form, *([] if classifier.engine == EAGER else [classifier.engine])),
        seconds=elapsed + work.seconds(classifier, finder.classifier if finder else None),
        warning=warning,
    )
