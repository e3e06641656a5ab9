"""One classifier, all sources, one report: from what the caller gives to a `Run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nppr.budget import Budget
from nppr.classifiers import Classifier, ModelSpec, Prepared, load_classifier, prepare
from nppr.data import Data, load_data
from nppr.data.load import DataSpec
from nppr.errors import BudgetError
from nppr.measure import ProgressCallback, probe
from nppr.report.schema import Report
from nppr.run import Facts, Run, Settings
from nppr.run_folder import RunFolder
from nppr.sources import DEFAULT_SOURCES, parse_sources
from nppr.sources.spec import check_unique
from nppr.types import PerturbationSource

__all__ = ["Plan", "assess"]


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
    sources: str | Sequence[PerturbationSource] | None = None,
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: int | None = None,
    draws: int = 100,
    inputs: int | None = None,
    fit_inputs: int | None = None,
    select_inputs: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    quantise: bool = False,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Report:
    """Assess a classifier under every source, on the same inputs and seed.

    `model` is a name of the zoo, a module, a callable or a `Classifier`; `data` a name, a pair
    (images, labels) or a `Data`. `budget` must be stated, except for the digits demo. With `out` the
    run is kept in a folder and can be resumed.

    >>> report = assess(inputs=50, draws=10, sources="uniform")
    >>> [row.metric.value for row in report.results]
    ['accuracy', 'PR', 'PR', 'PR', 'normalised_accuracy']
    """
    settings = Settings(draws, inputs, fit_inputs, select_inputs, confidence, seed, quantise)
    loaded = load_data(data).limit(
        inputs=inputs, fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed
    )
    budget = budget or _default_budget(loaded)
    chosen = _sources(sources, budget)
    examples = probe(loaded.evaluate)
    classifier = load_classifier(
        model, weights=weights, mean=mean, std=std, classes=classes, channels=examples.shape[1]
    )
    facts = _facts(classifier, loaded, budget, chosen, settings)
    if resume and out is not None and batch_size is None:
        batch_size = RunFolder(Path(out)).micro_batch
    ready = prepare(
        classifier, examples, classes=loaded.classes, device=device, micro_batch=batch_size
    )
    folder = None
    if out is not None:
        folder = RunFolder.open(out, facts.identity(), resume=resume, overwrite=overwrite)
        folder.record_micro_batch(ready.micro_batch)
    if on_plan:
        on_plan(_plan(loaded, chosen, settings, ready))
    return Run(facts, settings, loaded, ready, folder, progress).complete(chosen)


def _default_budget(data: Data) -> Budget:
    if data.name == "digits":
        return Budget.linf(0.1)
    raise BudgetError(
        "`budget` must be stated for your data: the largest perturbation you admit."
        " Example: --norm linf --eps 8/255"
    )


def _sources(
    sources: str | Sequence[PerturbationSource] | None, budget: Budget
) -> list[PerturbationSource]:
    if sources is None or isinstance(sources, str):
        return parse_sources(DEFAULT_SOURCES if sources is None else sources, budget)
    check_unique(sources)
    for source in sources:
        if source.budget is not None and source.budget != budget:
            raise BudgetError(
                f"`budget` must be that of all sources, {source.name!r} has {source.budget}"
                f" instead of {budget}."
            )
    return list(sources)


def _facts(
    classifier: Classifier,
    data: Data,
    budget: Budget,
    sources: Sequence[PerturbationSource],
    settings: Settings,
) -> Facts:
    shape: list[int] = list(probe(data.evaluate).shape[1:])
    parts = (data.fit, data.select, data.evaluate)
    chosen: dict[str, Any] = {**vars(settings)}
    seed = chosen.pop("seed")
    return Facts(
        classifier={
            "name": classifier.name,
            "mean": classifier.mean,
            "std": classifier.std,
            "fingerprint": classifier.fingerprint(),
        },
        data={
            "name": data.name,
            "classes": data.classes,
            "class_names": list(data.class_names),
            "shape": shape,
            "inputs": {part.kind.name: len(part) for part in parts},
            "fingerprint": data.evaluate.fingerprint(),
        },
        budget={"norm": budget.norm.name, "radius": budget.radius, "text": budget.radius_text},
        settings={"sources": [source.name for source in sources], **chosen},
        seed=seed,
    )


def _plan(
    data: Data,
    sources: Sequence[PerturbationSource],
    settings: Settings,
    classifier: Prepared,
) -> Plan:
    inputs = len(data.evaluate)
    draws = [source.cost * (source.fixed_draws or settings.draws) for source in sources]
    return Plan(
        inputs=inputs,
        sources=tuple(source.name for source in sources),
        micro_batch=classifier.micro_batch,
        form=classifier.form,
        seconds=inputs * (1 + sum(draws)) / classifier.images_per_second,
    )
