"""What identifies a run: classifier, data, budget and settings, described for its report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.core.transformations import NaturalTransform
from nppr.data import PROBE_INPUTS, Data
from nppr.errors import BudgetError, ClassifierError, DistributionError, SpecError
from nppr.measuring.measurement import probe
from nppr.models import Classifier, PreparedClassifier, frozen, within_memory
from nppr.report.model import DataRecord, LayoutRecord, SettingsRecord, SourceRecord, SplitSizes
from nppr.run.resolve import Resolved
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search_record import BudgetRecord, ClassifierRecord, FeaturesRecord, Record
from nppr.search.search_settings import SearchSettings
from nppr.settings import Measure
from nppr.sources import Source, references
from nppr.statistics.frame_statistics import FrameStatistics


class RunRecord(Record):
    """The fields of a report that are known before anything is measured: the identity of a run."""

    nppr_version: str
    classifier: ClassifierRecord
    data: DataRecord
    budget: BudgetRecord
    settings: SettingsRecord
    seed: int
    noise_samples: FrameStatistics | None = None


def describe_run(
    resolved: Resolved,
    ready: PreparedClassifier,
    budget: Budget,
    settings: Measure,
    *,
    sources: Sequence[Source],
    search: SearchSettings | None,
    distributions: Sequence[LearnedNoise],
) -> RunRecord:
    """Describe a run; learned noise that is given must have been learned for its budget."""
    data, classifier = resolved.data, resolved.classifier
    with within_memory(classifier.name):
        described = _describe_classifier(classifier, resolved.feature_model, data)
    share_of = None if data.layout is None else data.layout.text
    record = RunRecord(
        nppr_version=version("nppr"),
        classifier=described,
        data=_describe_data(data, ready.original),
        budget=BudgetRecord.of(budget, data.shape).model_copy(update={"share_of": share_of}),
        settings=SettingsRecord(
            sources=tuple(
                SourceRecord(
                    name=source.name,
                    kind=source.kind,
                    metric=source.metric,
                    fixed=source.is_fixed_noise,
                    reference=source.is_reference,
                    fitted=source.needs_fit_split,
                    options=source.options(data.shape),
                )
                for source in sources
            ),
            search=search,
            distributions={each.source.name: each.checksum for each in distributions},
            measure=settings,
        ),
        seed=settings.seed,
        noise_samples=next((source.samples for source in sources if source.samples), None),
    )
    for each in distributions:
        if each.record.budget.fingerprint != record.budget.fingerprint:
            raise DistributionError(
                f"`distributions` must be learned with the transformation of the budget,"
                f" {each.source.name!r} was learned with another function of the same name."
            )
        names = [noise.name for noise in references(each.source.budget)]
        if each.winner and each.winner not in names:
            raise DistributionError(
                f"`distributions` must have been compared with {', '.join(names)},"
                f" {each.source.name!r} names {each.winner[:80]!r}. Fit it again."
            )
    return record


def require_suitable(
    data: Data, budget: Budget, settings: Measure, sources: Sequence[Source]
) -> None:
    """Raise an error where images or classes are needed and the data hold something else."""
    budget.domain(data.shape)
    layout = data.layout
    for source in sources:
        corrupts = source.metric is Metric.CORRUPTION and not data.is_image
        if corrupts or (source.needs_classes and data.task is not None):
            kind = "images" if corrupts else "classifiers without a task"
            raise SpecError(
                f"`sources` must suit the data, got {source.name!r}, which is for {kind}."
                " Leave it out."
            )
    if layout is None:
        return
    if isinstance(budget.transform, NaturalTransform) and layout.kind != "image":
        raise BudgetError(
            f"`transform` must be a function of your own for inputs of shape {layout.shape}, got"
            f" {budget.transform.spec!r}, which is for images. Example: CustomTransform"
        )
    if settings.quantise:
        raise SpecError(
            "`quantise` must be left out with a range: it is for 8-bit images in [0, 1]."
        )


def _describe_classifier(
    classifier: Classifier, feature_model: Classifier | None, data: Data
) -> ClassifierRecord:
    fingerprint = classifier.fingerprint()
    if fingerprint is None:  # a plain callable: its answers distinguish it, as far as they differ
        with frozen(classifier) as model, torch.no_grad():
            outputs = model.logits(probe(data.evaluate).clone())
            answers = (
                outputs.argmax(1) if classifier.task is None else outputs.float().round(decimals=3)
            )
        fingerprint = "answers " + hashlib.sha256(answers.cpu().numpy().tobytes()).hexdigest()
    return ClassifierRecord(
        name=classifier.name,
        weights=classifier.weights,
        mean=classifier.mean,
        std=classifier.std,
        fingerprint=fingerprint,
        features=_describe_features(classifier, feature_model, data),
        weights_sha256=classifier.weights_sha256,
    )


def _describe_features(
    classifier: Classifier, feature_model: Classifier | None, data: Data
) -> FeaturesRecord | None:
    """Which model and layer the features come from, and how many there are; None without any."""
    model = classifier if feature_model is None else feature_model
    try:
        with frozen(model) as seen, torch.no_grad():
            number = seen.features(probe(data.evaluate)[:2]).shape[1]
    except ClassifierError:
        if feature_model is None and classifier.features is None:
            return None
        raise
    return FeaturesRecord(
        model=model.name,
        fingerprint=model.fingerprint(),
        layer=model.features or "input of the last linear layer",
        number=number,
    )


def _describe_data(data: Data, classifier: Classifier) -> DataRecord:
    """Describe the data; the fingerprint of a task tells it from others of the same words."""
    task, fingerprint = data.task, None
    if task is not None:
        x, y = data.evaluate.batch(np.arange(min(PROBE_INPUTS, len(data.evaluate))))
        place = classifier.device or torch.get_default_device()
        with frozen(classifier) as model, torch.no_grad():
            fingerprint = task.fingerprint(model.logits(x.to(place)), model.targets(y.to(place)))
    return DataRecord(
        name=data.name,
        classes=data.classes,
        class_names=tuple(data.class_names),
        shape=tuple(data.shape),
        split=data.split,
        resize=data.resize,
        layout=None if data.layout is None else LayoutRecord(**vars(data.layout)),
        task=None if task is None else task.words,
        task_fingerprint=fingerprint,
        task_kind=task.kind or None if task else None,
        inputs=SplitSizes(**{each.kind.name: len(each) for each in data.splits}),
        fingerprint=data.evaluate.fingerprint(),
        notes=data.notes,
    )
