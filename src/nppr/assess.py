"""One classifier, all sources, one report: from what the caller gives to a `Run`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nppr.budget import Budget
from nppr.classifiers import (
    Classifier,
    ModelSpec,
    Prepared,
    frozen,
    load_classifier,
    prepare,
)
from nppr.classifiers.checking import check_classifier
from nppr.data import Data, load_data
from nppr.data.load import DataSpec
from nppr.errors import BudgetError, ClassifierError
from nppr.measure import ProgressCallback, probe
from nppr.report.schema import Report
from nppr.run import Facts, Run, Settings
from nppr.run_folder import RunFolder
from nppr.sources import DEFAULT_SOURCES, parse_sources
from nppr.sources.naming import all_options
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
    feature_model: ModelSpec | None = None,
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

    `model` is a module, a callable, a name (docs/models.md) or a `Classifier`, which also holds a
    normalisation; `data` are tensors, a name or path (docs/data.md), a data set of PyTorch or a
    `Data`. `budget` must be stated, except for the digits demo. `feature_model` gives the features
    that input-dependent noise may see, by default `model` itself. With `out` the run is kept in a
    folder and can be resumed.

    >>> report = assess(inputs=50, draws=10, sources="uniform")
    >>> [row.metric.value for row in report.results]
    ['accuracy', 'PR', 'PR', 'PR', 'PR', 'normalised_accuracy']
    """
    settings = Settings(draws, inputs, fit_inputs, select_inputs, confidence, seed, quantise)
    loaded = load_data(data).limit(
        inputs=inputs, fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed
    )
    budget = _budget(budget, loaded)
    chosen = _sources(sources, budget)
    examples = probe(loaded.evaluate)
    classifier = load_classifier(model, data=loaded)
    check_classifier(classifier, examples[:2], loaded.classes)
    facts = Facts(
        classifier=_describe_classifier(classifier, feature_model, loaded),
        data=_describe_data(loaded),
        budget={"norm": budget.norm.name, "radius": budget.radius, "text": budget.radius_text},
        settings={
            "sources": [source.name for source in chosen],
            "options": {source.name: all_options(source) for source in chosen},
            **settings.as_dict(),
        },
        seed=seed,
    )
    division = RunFolder.division(out) if resume and out is not None else {}
    ready = prepare(
        classifier,
        examples,
        classes=loaded.classes,
        device=device,
        micro_batch=batch_size if batch_size is not None else division.get("micro_batch"),
        form=division.get("form"),
    )
    folder = None
    if out is not None:
        identity = {**facts.identity(), "device": ready.device.type}
        folder = RunFolder.open(out, identity, resume=resume, overwrite=overwrite)
        folder.record_division({"micro_batch": ready.micro_batch, "form": list(ready.form)})
    if on_plan:
        on_plan(_plan(loaded, chosen, settings, ready))
    return Run(facts, settings, loaded, ready, folder, progress).complete(chosen)


def _budget(budget: Budget | None, data: Data) -> Budget:
    if isinstance(budget, Budget) and budget.norm.name == "linf" and budget.radius > 1:
        raise BudgetError(
            f"`radius` must be at most 1 for images in [0, 1], got {budget.radius_text}."
            " Example: 8/255"
        )
    if isinstance(budget, Budget):
        return budget
    if budget is not None:
        raise BudgetError(f"`budget` must be a Budget, got {budget!r}. Example: Budget.linf(0.1)")
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


def _describe_classifier(
    classifier: Classifier, feature_model: ModelSpec | None, data: Data
) -> dict[str, Any]:
    return {
        "name": classifier.name,
        "weights": classifier.weights,
        "mean": classifier.mean,
        "std": classifier.std,
        "fingerprint": classifier.fingerprint() or _answers(classifier, data),
        "features": _describe_features(classifier, feature_model, data),
    }


def _answers(classifier: Classifier, data: Data) -> str:
    """A hash of a plain callable's answers: two that differ are told apart, as far as they show."""
    with frozen(classifier) as model, torch.no_grad():
        answers = model.logits(probe(data.evaluate).clone()).argmax(1)
    return "answers " + hashlib.sha256(answers.cpu().numpy().tobytes()).hexdigest()


def _describe_features(
    classifier: Classifier, feature_model: ModelSpec | None, data: Data
) -> dict[str, Any] | None:
    """Which model and layer the features come from, and how many there are; None without any."""
    model = classifier if feature_model is None else load_classifier(feature_model, data=data)
    try:
        with frozen(model) as seen, torch.no_grad():
            number = seen.features(probe(data.evaluate)[:2]).shape[1]
    except ClassifierError:
        if feature_model is None and classifier.features is None:
            return None
        raise
    return {
        "model": model.name,
        "fingerprint": model.fingerprint(),
        "layer": model.features or "input of the last linear layer",
        "number": number,
    }


def _describe_data(data: Data) -> dict[str, Any]:
    parts = (data.fit, data.select, data.evaluate)
    return {
        "name": data.name,
        "classes": data.classes,
        "class_names": list(data.class_names),
        "shape": list(data.shape),
        "split": data.split,
        "resize": data.resize,
        "inputs": {part.kind.name: len(part) for part in parts},
        "fingerprint": data.evaluate.fingerprint(),
    }


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
