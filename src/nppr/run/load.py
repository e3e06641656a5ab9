"""From options to data and classifiers, for commands and studies alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nppr.core.budget import Budget
from nppr.data import Data, DataSpec, all_evaluated, load_data, with_class_order
from nppr.errors import BudgetError, SpecError
from nppr.models import Classifier, ModelSpec, load_classifier
from nppr.settings import (
    BudgetSettings,
    DataSettings,
    Limits,
    ModelSettings,
    NetworkSettings,
    TrainOptions,
)
from nppr.sources import parse_sources, split_search

if TYPE_CHECKING:
    from nppr.train import TrainSettings


def load_images(
    options: DataSettings,
    settings: Limits,
    classes: int | None = None,
    *,
    evaluate_all: bool = False,
    given: DataSpec | None = None,
) -> Data:
    """The data, with as many inputs in each split as the settings allow.

    Data that are `given` replace those of the options; all other options apply to them too.
    """
    loaded = load_data(
        options.data if given is None else given,
        split=options.split,
        resize=options.resize,
        input_range=options.range,
    )
    loaded = all_evaluated(loaded) if evaluate_all else loaded
    if options.class_order is not None:
        loaded = with_class_order(loaded, options.class_order)
    loaded = loaded if classes is None else loaded.with_classes(classes)
    return loaded.limit(
        inputs=settings.inputs,
        fit_inputs=settings.fit_inputs,
        select_inputs=settings.select_inputs,
        seed=settings.seed,
    )


def load_models(
    model: NetworkSettings,
    data: Data,
    other: ModelSettings | None = None,
    *,
    given: ModelSpec | None = None,
) -> tuple[Classifier, Classifier | None]:
    """The classifier, and the other model that gives features, if there is one.

    A layer that is named for features is that of the other model where there is one. A model that is
    `given` replaces that of the options; all other options apply to it too.
    """
    named = other.feature_model if other else None
    classifier = load_classifier(
        model.model if given is None else given,
        weights=model.weights,
        mean=model.mean,
        std=model.std,
        classes=model.classes,
        stem=model.stem,
        features=None if named else model.features,
        data=data,
    )
    if other is None or named is None:
        return classifier, None
    return classifier, load_classifier(
        named, weights=other.feature_weights, features=model.features, data=data
    )


def stated_budget(options: BudgetSettings) -> Budget | None:
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


def train_settings(
    model: str,
    shape: tuple[int, ...],
    options: TrainOptions,
    *,
    stem: str | None = None,
    threads: int | None = None,
) -> TrainSettings:
    """All settings of a training on images of `shape` (C, H, W): those given, else the defaults."""
    # Not above: no assessment needs it.
    from nppr.train import Adversary, Optimiser, default_settings

    chosen = None if options.optimiser is None else Optimiser(options.optimiser)
    defaults = default_settings(model, shape, chosen)
    if options.momentum is not None and defaults.optimiser is not Optimiser.SGD:
        raise SpecError(
            f"`momentum` must be left out with the optimiser {defaults.optimiser.value}."
            " Add --optimiser sgd to use it."
        )
    adversary = None
    if options.eps is not None:
        attack = {"steps": options.attack_steps, "step": options.attack_step}
        budget = Budget.parse(options.norm or "linf", options.eps)
        adversary = replace(Adversary(budget), **_without_none(attack))
    attack_fields = {"method", "optimiser", "norm", "eps", "attack_steps", "attack_step"}
    given = {**options.model_dump(exclude=attack_fields), "stem": stem, "threads": threads}
    return replace(defaults, adversary=adversary, **_without_none(given))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
