"""One classifier, all sources, one report: from what the caller gives to a `Run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nppr.budget import Budget, parse_radius
from nppr.classifiers import ModelSpec
from nppr.data import DataSpec
from nppr.distributed import world
from nppr.errors import BudgetError, SpecError
from nppr.fit import FitProgress, FitSettings
from nppr.learned import Fitted
from nppr.measure import ProgressCallback
from nppr.report.schema import Report
from nppr.run import Run, Session, Settings
from nppr.run.precision import FIRST
from nppr.run.rare import movable
from nppr.run.settings import DRAWS
from nppr.setup import Setup, limited, set_up, stated_budget
from nppr.sources import DEFAULT_SOURCES, Universal, learned_name, parse_sources
from nppr.sources.corruptions import Corruption
from nppr.sources.naming import all_options
from nppr.sources.spec import NPPR, check_unique, split_nppr
from nppr.types import PerturbationSource

__all__ = ["Plan", "assess"]

PASSES_OF_A_CALL = 3.5
"""Forward passes that a forward and backward takes, with the selection that comes with it."""


@dataclass(frozen=True)
class Plan:
    """What is about to run, told before it does."""

    inputs: int
    sources: tuple[str, ...]
    micro_batch: int
    form: tuple[str, ...]
    seconds: float


def assess(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    *,
    budget: Budget | None = None,
    sources: str | Sequence[str | PerturbationSource] | None = None,
    fit: FitSettings | None = None,
    distributions: Sequence[Fitted] = (),
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
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    on_fit: Callable[[FitProgress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Report:
    """Assess a classifier under every source, on the same inputs and seed.

    `model` is a module, a callable, a name (docs/models.md) or a `Classifier`, which also holds a
    normalisation; `data` are tensors, a name or path (docs/data.md), a data set of PyTorch or a
    `Data`. `budget` must be stated, except for the digits demo. `sources` are names with options
    (docs/definitions.md), in one text or in a list with sources of your own (`CustomAttack`,
    `CustomNoise`). `fit` says which noise the source `nppr` may learn and how; `distributions` were
    learned before. `feature_model` gives the features that input-dependent noise may see, by default
    `model` itself. With `only_merged` attacks skip what is broken already, and only AR over all of
    them is reported. With `out` the run is kept in a folder and can be resumed.

    `draws` per input are 100 by default. With `precision` inputs (up to `inputs`) and draws (from
    `draws`, by default 16) are added until the interval of every PR and NPPR is as narrow as
    that to either side. With `rare_calls` splitting takes over, within as many calls in all, for
    inputs without a failure among their draws. Sources are measured at the other `radii` too.

    >>> report = assess(inputs=50, draws=10, sources="uniform")
    >>> [row.metric.value for row in report.results][:6]
    ['accuracy', 'PR', 'PR', 'PR', 'PR', 'PR']
    """
    settings = Settings(
        draws=draws if draws is not None else (FIRST.draws if precision else DRAWS),
        inputs=inputs,
        fit_inputs=fit_inputs,
        select_inputs=select_inputs,
        confidence=confidence,
        seed=seed,
        quantise=quantise,
        only_merged=only_merged,
        precision=precision,
        rare_calls=rare_calls,
        radii=_radii(radii),
    )
    loaded = limited(data, settings)
    budget = stated_budget(budget, loaded)
    for radius in settings.radii:
        stated_budget(Budget.parse(budget.norm.name, radius), loaded)
    wanted, chosen = _sources(sources, budget, distributions)
    if rare_calls is not None and not (wanted or distributions or any(map(movable, chosen))):
        raise SpecError(
            "`rare` must come with gaussian, uniform, laplace, nppr or bound, got"
            f" {', '.join(source.name for source in chosen)}."
        )
    fit = (fit or FitSettings()) if wanted else None
    work = {
        "sources": [*([NPPR] if wanted else []), *(source.name for source in chosen)],
        "options": {source.name: _options(source, loaded.shape) for source in chosen},
        "fit": fit.as_dict() if fit else None,
        "distributions": {each.source.name: each.saved.checksum for each in distributions},
    }
    ready = set_up(
        model,
        loaded,
        budget,
        settings,
        work,
        feature_model=feature_model,
        batch_size=batch_size,
        device=device,
        out=out,
        resume=resume,
        overwrite=overwrite,
    )
    if on_plan:
        learned = [each.source for each in distributions]
        on_plan(_plan(ready, [*chosen, *learned], fit))
    session = Session(settings, loaded, ready.classifier, ready.folder, progress)
    run = Run(ready.facts, session, blind=ready.blind(fit))
    return run.complete(chosen, distributions, ready.learner(fit, on_fit) if fit else None)


def _radii(radii: Sequence[str | float]) -> tuple[str, ...]:
    """As they were written, smallest first."""
    try:
        known = {parse_radius(radius): str(radius) for radius in radii}
    except BudgetError as error:
        raise BudgetError(str(error).replace("`radius`", "`radii`")) from error
    if len(known) < len(radii):
        raise SpecError(f"`radii` must be different, got {', '.join(map(str, radii))}.")
    return tuple(known[radius] for radius in sorted(known))


def _sources(
    sources: str | Sequence[str | PerturbationSource] | None,
    budget: Budget,
    distributions: Sequence[Fitted],
) -> tuple[bool, list[PerturbationSource]]:
    """Whether NPPR is to be fitted, and the sources that are known already."""
    learned = [each.source for each in distributions]
    listed = [DEFAULT_SOURCES] if sources is None else sources
    listed = [listed] if isinstance(listed, str) else list(listed)
    wanted, given = False, []
    for each in listed:
        if not isinstance(each, str):
            given.append(each)
            continue
        found, rest = split_nppr(each)
        if wanted and found:
            raise SpecError(f"`sources` must be different, got {NPPR!r} twice.")
        wanted = wanted or found
        given += parse_sources(rest, budget) if rest else []
    wanted = wanted and not learned  # what was learned before takes the place of the search
    if given or not (wanted or learned):
        check_unique(given)
    for source in (*given, *learned):
        if source.budget is not None and source.budget != budget:
            raise BudgetError(
                f"`budget` must be that of all sources, {source.name!r} has {source.budget}"
                f" instead of {budget}."
            )
    return wanted, given


def _options(source: PerturbationSource, shape: tuple[int, ...]) -> dict[str, Any]:
    """All options of a source; of a corruption also which set of constants `auto` stands for."""
    found = all_options(source)
    if isinstance(source, Corruption):
        found["constants"] = source.constants_for(shape)
    return found


def _plan(ready: Setup, sources: Sequence[PerturbationSource], fit: FitSettings | None) -> Plan:
    inputs, asked = len(ready.data.evaluate), ready.settings.draws
    names = [source.name for source in sources]
    draws = [source.cost * (source.fixed_draws or asked) for source in sources]
    passes = inputs * (1 + sum(draws) * (1 + len(ready.settings.radii)))
    passes += ready.settings.rare_calls or 0
    fitted = [source for source in sources if isinstance(source, Universal)]
    passes += sum(source.epochs for source in fitted) * len(ready.data.fit) * PASSES_OF_A_CALL
    if fit is not None:
        names = [*(learned_name(floor) for floor in fit.floors), *names]
        passes += inputs * asked * len(fit.floors)
        passes += fit.seeds * fit.total_calls * PASSES_OF_A_CALL
    return Plan(
        inputs=inputs,
        sources=tuple(names),
        micro_batch=ready.classifier.micro_batch,
        form=ready.classifier.form,
        seconds=passes / ready.classifier.images_per_second / world().size,
    )
