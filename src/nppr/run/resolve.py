"""From settings, or objects given from Python, to data, classifier, feature model and budget.

`resolve` is called once for a run, whichever command, gate or study asks. Nothing else loads data or a
classifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nppr.core.budget import Budget
from nppr.core.task import Task
from nppr.data import (
    ClassOrder,
    Data,
    DataSpec,
    RangeSpec,
    all_evaluated,
    fit_classes,
    load_data,
    with_class_order,
    with_slices,
)
from nppr.errors import BudgetError, ClassifierError, SpecError
from nppr.measuring.measurement import probe
from nppr.models import Classifier, ModelSpec, PreparedClassifier, frozen, load_classifier
from nppr.settings import (
    BudgetSettings,
    DataSettings,
    ImageSettings,
    Limits,
    ModelSettings,
    NetworkSettings,
    TrainOptions,
)
from nppr.sources import parse_sources, split_search

if TYPE_CHECKING:
    from nppr.train import TrainSettings


@dataclass(frozen=True, eq=False)
class Resolved:
    """Data, limited to the inputs asked for, and the classifier that is assessed on them."""

    data: Data
    classifier: Classifier
    feature_model: Classifier | None = None
    budget: Budget | None = None
    prepared: PreparedClassifier | None = None
    request: Callable[[], Resolved] | None = None
    """Resolves the same again, in another process."""

    def required_budget(self) -> Budget:
        return require_budget(self.budget, self.data.name)


def resolve(
    model: ModelSpec,
    data: DataSpec,
    limits: Limits,
    budget: Budget | BudgetSettings | None = None,
    *,
    network: NetworkSettings | None = None,
    reading: DataSettings | None = None,
    feature_model: ModelSpec | None = None,
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    class_order: ClassOrder | str | Path | None = None,
) -> Resolved:
    """Load data and classifier: by name or path, or objects of Python.

    The groups `network` and `reading` state how: weights, normalisation, split, size, slices. `model`
    and `data` replace the names that these groups hold.
    """
    classes = network.classes if network else None
    loaded = resolve_data(
        data, limits, reading=reading, classes=classes, task=task, input_range=input_range,
        class_order=class_order,
    )  # fmt: skip
    if reading is not None:
        loaded = with_slices(loaded, reading.slices)
    classifier, features = resolve_models(model, loaded, network, feature_model=feature_model)
    stated = read_budget(budget) if isinstance(budget, BudgetSettings) else budget
    again = partial(
        resolve, model, data, limits, network=network, reading=reading, task=task,
        input_range=input_range, class_order=class_order,
    )  # fmt: skip
    known = _in_its_classes(loaded, classifier)
    return Resolved(known, classifier, features, stated, request=again)


def resolve_data(
    data: DataSpec,
    limits: Limits,
    *,
    reading: ImageSettings | None = None,
    classes: int | None = None,
    task: Task | None = None,
    input_range: RangeSpec | None = None,
    class_order: ClassOrder | str | Path | None = None,
) -> Data:
    """Load data, limited; `classes` is the number of classes, if the labels do not show all."""
    reading = reading or ImageSettings()
    if isinstance(reading, DataSettings):
        input_range = reading.range if input_range is None else input_range
        class_order = reading.class_order if class_order is None else class_order
    loaded = load_data(
        data, split=reading.split, resize=reading.resize, input_range=input_range, task=task
    )
    loaded = all_evaluated(loaded) if getattr(limits, "evaluate_all", False) else loaded
    loaded = loaded if class_order is None else with_class_order(loaded, class_order)
    loaded = loaded if classes is None else loaded.with_classes(classes)
    return loaded.limit(
        inputs=limits.inputs,
        fit_inputs=limits.fit_inputs,
        select_inputs=limits.select_inputs,
        seed=limits.seed,
    )


def resolve_models(
    model: ModelSpec,
    data: Data,
    network: NetworkSettings | None = None,
    *,
    feature_model: ModelSpec | None = None,
) -> tuple[Classifier, Classifier | None]:
    """Load the classifier, and the other model that gives features, if there is one.

    If another model gives the features, the layer that `network` names for them is a layer of that one.
    """
    known = network or NetworkSettings()
    weights = None
    if isinstance(known, ModelSettings) and feature_model is None:
        feature_model, weights = known.feature_model, known.feature_weights
    classifier = load_classifier(
        model,
        weights=known.weights,
        mean=known.mean,
        std=known.std,
        classes=known.classes,
        stem=known.stem,
        features=known.features if feature_model is None else None,
        data=data,
    )
    if feature_model is None:
        return classifier, None
    return classifier, load_classifier(
        feature_model, weights=weights, features=known.features, data=data
    )


def _in_its_classes(data: Data, classifier: Classifier) -> Data:
    """Return the data in the classes of the outputs; a model that fails is reported later."""
    try:
        with frozen(classifier) as model, torch.no_grad():
            outputs = model.logits(probe(data.evaluate)[:2].clone())
    except ClassifierError:
        return data
    return fit_classes(data, outputs.shape[1]) if outputs.ndim == 2 else data


def read_budget(options: BudgetSettings) -> Budget | None:
    """Return the budget, or None if it was not stated."""
    if options.transform is not None:
        return Budget.box(options.transform)
    return None if options.eps is None else Budget.parse(options.norm, options.eps)


def require_budget(budget: Budget | None, data: str, argument: str = "radius") -> Budget:
    """Return the budget, which must be stated except for the digits demo; `data` is its name."""
    if isinstance(budget, Budget) and budget.norm.name == "linf" and budget.radius > 1:
        raise BudgetError(
            f"`{argument}` must be at most 1 for images in [0, 1], got {budget.radius_text}."
            " Example: 8/255"
        )
    if isinstance(budget, Budget):
        return budget
    if budget is not None:
        raise BudgetError(f"`budget` must be a Budget, got {budget!r}. Example: Budget.linf(0.1)")
    if data == "digits":
        return Budget.linf(0.1)
    raise BudgetError(
        "`budget` must be stated for your data: the largest perturbation you admit."
        " Example: --norm linf --eps 8/255, or --transform rotate=15"
    )


def require_sources(text: str | None, budget: Budget | None = None) -> None:
    """Raise `SpecError` if a list of sources names one that does not exist in the budget."""
    others = split_search(text, budget)[1] if text else None
    if others:
        parse_sources(others, budget or Budget.linf(0.1))


def choose_train_settings(
    model: str,
    shape: tuple[int, ...],
    options: TrainOptions,
    *,
    stem: str | None = None,
    threads: int | None = None,
) -> TrainSettings:
    """All settings of a training on images of `shape` (C, H, W): those given, else the defaults."""
    # Not above: no assessment needs it.
    from nppr.train import Adversary, Optimiser, default_training

    chosen = None if options.optimiser is None else Optimiser(options.optimiser)
    defaults = default_training(model, shape, chosen)
    if options.momentum is not None and defaults.optimiser is not Optimiser.SGD:
        raise SpecError(
            f"`momentum` must be left out with the optimiser {defaults.optimiser.value}."
            " Add --optimiser sgd to use it."
        )
    adversary = None
    if options.eps is not None:
        adversary = Adversary(Budget.parse(options.norm or "linf", options.eps))
        if options.attack_steps is not None:
            adversary = replace(adversary, steps=options.attack_steps)
        if options.attack_step is not None:
            adversary = replace(adversary, step=options.attack_step)
    attack_fields = {"method", "optimiser", "norm", "eps", "attack_steps", "attack_step"}
    given = {**options.model_dump(exclude=attack_fields), "stem": stem, "threads": threads}
    stated = {name: value for name, value in given.items() if value is not None}
    return replace(defaults, adversary=adversary, **stated)
