"""From options to data and classifiers, for commands and studies alike."""

from __future__ import annotations

from nppr.assessment.run_settings import RunSettings
from nppr.classifiers import Classifier, load_classifier
from nppr.data import Data, load_data
from nppr.options import DataOptions, FeatureModelOptions, ModelOptions


def load_images(options: DataOptions, settings: RunSettings, classes: int | None = None) -> Data:
    """The data, with as many inputs in each split as the settings allow."""
    loaded = load_data(options.data, split=options.split, resize=options.resize)
    loaded = loaded if classes is None else loaded.with_classes(classes)
    return limit_inputs(loaded, settings)


def limit_inputs(data: Data, settings: RunSettings) -> Data:
    """The data with as many inputs in each split as the settings allow."""
    return data.limit(
        inputs=settings.inputs,
        fit_inputs=settings.fit_inputs,
        select_inputs=settings.select_inputs,
        seed=settings.seed,
    )


def load_models(
    model: ModelOptions, data: Data, other: FeatureModelOptions | None = None
) -> tuple[Classifier, Classifier | None]:
    """The classifier, and the other model that gives features, if there is one.

    A layer that is named for features is that of the other model where there is one.
    """
    named = other.feature_model if other else None
    classifier = load_classifier(
        model.model,
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
