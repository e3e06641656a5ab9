"""What every command does before it computes: load, check, describe, prepare, open the run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.core.transformations import NaturalTransform
from nppr.data import PROBE_INPUTS, Data
from nppr.errors import (
    BudgetError,
    ClassifierError,
    DistributionError,
    GradientError,
    SpecError,
)
from nppr.measuring.measurement import probe
from nppr.models import (
    Classifier,
    PreparedClassifier,
    frozen,
    in_fixed_form,
    is_out_of_memory,
    prepare,
    with_rough_gradients,
    within_memory,
)
from nppr.noise.family import Dependency
from nppr.report.model import DataRecord, LayoutRecord, SettingsRecord, SourceRecord, SplitSizes
from nppr.run.resolve import Resolved
from nppr.run.run_folder import Division, RunFolder
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import NoiseSearch
from nppr.search.search_record import BudgetRecord, ClassifierRecord, FeaturesRecord, Record
from nppr.search.search_settings import AUTO, SCORES, SearchSettings
from nppr.settings import Measure, Run
from nppr.sources import Source, references
from nppr.system.specs import EAGER


@dataclass(frozen=True, eq=False)
class Setup:
    """A classifier, data and a run folder, ready for work, and their record in the report.

    As a context it lets go of the folder in the end.
    """

    data: Data
    budget: Budget
    classifier: PreparedClassifier
    feature_model: Classifier | None
    settings: Measure
    folder: RunFolder | None
    record: RunRecord
    searching: PreparedClassifier | None = None
    """The classifier as the search runs it, where there is one."""
    finished: bool = False
    """The folder holds this run already, complete: what is measured is read from it."""

    def __enter__(self) -> Setup:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            self.folder.close()

    @property
    def resolved(self) -> Resolved:
        """The same, to be measured again in another run."""
        return Resolved(
            self.data, self.classifier.original, self.feature_model, self.budget, self.classifier
        )

    def search(
        self,
        settings: SearchSettings,
        progress: Callable[[FitProgress], None] | None = None,
        given: Sequence[LearnedNoise] = (),
    ) -> NoiseSearch:
        """The search for the worst noise of this classifier, beside noise that is given.

        It rounds the same way in every run: form and micro-batch are not the fastest by the clock.
        Noise that cannot see features, because the model shows none, may see the label only.
        """
        if self.lacks_features(settings):
            family = replace(settings.family, dependency=Dependency.LABEL)
            settings = replace(settings, family=family)
        settings = settings.of_classes(self.data.classes)
        box = self.budget.transform is not None
        if box:
            settings = settings.in_box()
        by_itself = settings.method == AUTO and settings.walks and not self.gives_gradients
        if settings.method == SCORES or by_itself:
            settings = settings.by_scores(box=box)
        return NoiseSearch(
            settings=settings,
            classifier=self.searching or in_fixed_form(self.classifier, probe(self.data.evaluate)),
            data=self.data,
            budget=self.budget,
            described=self.record.classifier,
            seed=self.settings.seed,
            feature_model=self.feature_model,
            quantise=self.settings.quantise,
            folder=self.folder.path / "fit" if self.folder else None,
            identity=self.folder.identity if self.folder else "",
            before_write=self.folder.list_files if self.folder else None,
            progress=progress,
            given=given,
            references=references(self.budget),
        )

    @cached_property
    def gives_gradients(self) -> bool:
        """Whether classifier and budget give gradients in a perturbation."""
        x, y = (each.to(self.classifier.device) for each in self.data.evaluate.batch(np.arange(1)))
        delta = x.new_zeros(len(x), *self.budget.domain(self.data.shape))
        try:
            with self.classifier.frozen() as models:
                model = models.fast
                self.budget.gradient(
                    model, lambda z: model.logits_and_labels(z, y)[0].sum(1), x, delta
                )
        except (GradientError, ClassifierError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            return False
        return True

    def lacks_features(self, settings: SearchSettings | None) -> bool:
        """Whether joint noise is asked for and the model shows no features."""
        joint = settings is not None and settings.family.dependency is Dependency.JOINT
        return joint and self.record.classifier.features is None


class RunRecord(Record):
    """The fields of a report that are known before anything is measured: the identity of a run."""

    nppr_version: str
    classifier: ClassifierRecord
    data: DataRecord
    budget: BudgetRecord
    settings: SettingsRecord
    seed: int


def prepare_run(
    resolved: Resolved,
    budget: Budget,
    settings: Measure,
    *,
    sources: Sequence[Source] = (),
    search: SearchSettings | None = None,
    distributions: Sequence[LearnedNoise] = (),
    run: Run | None = None,
) -> Setup:
    """Make everything ready for these sources and this search; with `run.out`, take the run's folder.

    A folder that holds this run complete is resumed: its numbers are read, not computed again.
    A classifier that is prepared already runs as it is.
    """
    run = run or Run()
    data, classifier, out = resolved.data, resolved.classifier, run.out
    resume, overwrite = run.resume, run.overwrite
    _require_images(data, budget, settings, sources)
    finished = out is not None and not overwrite and RunFolder.is_finished(out)
    resume = resume or finished
    division = RunFolder.division(out) if resume and out is not None else Division()
    threads = division.threads or torch.get_num_threads()
    if threads != torch.get_num_threads():  # it would round a fit otherwise
        torch.set_num_threads(threads)
    if run.batch_size is not None:
        division = replace(division, micro_batch=run.batch_size)
    ready = resolved.prepared or _prepare_as_before(
        partial(prepare, classifier, probe(data.evaluate), classes=data.classes, device=run.device),
        division,
        settings.engine,
    )
    searching = None
    if search is not None:
        exact = search.method == SCORES or ready.engine == EAGER
        rough = (False if exact else None) if division.rough is None else division.rough
        searching = _searching(ready, data, rough)
    with within_memory(classifier.name):
        described = _describe_classifier(classifier, resolved.feature_model, data)
    record = RunRecord(
        nppr_version=version("nppr"),
        classifier=described,
        data=_describe_data(data, ready.original),
        budget=_describe_budget(budget, data),
        settings=SettingsRecord(
            sources=tuple(_describe_source(source, data) for source in sources),
            search=search,
            distributions={each.source.name: each.checksum for each in distributions},
            measure=settings,
        ),
        seed=settings.seed,
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
    folder = None
    if out is not None:
        identity = {**record.model_dump(mode="json"), "device": ready.device.type}
        used = Division(
            ready.micro_batch,
            ready.speedups,
            torch.get_num_threads(),
            ready.engine,
            rough=searching is not None and searching.fast.bfloat16_copy is not None,
        )
        folder = RunFolder.open(out, identity, used, resume=resume, overwrite=overwrite)
    return Setup(
        data, budget, ready, resolved.feature_model, settings, folder, record, searching, finished
    )


def _require_images(
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


def _searching(
    classifier: PreparedClassifier, data: Data, rough: bool | None
) -> PreparedClassifier:
    """The classifier as a search runs it.

    Candidates are judged with the run's engine. Gradients are rough if that is asked for, or if it is
    left open (None) and worthwhile.
    """
    examples = probe(data.evaluate)
    return with_rough_gradients(in_fixed_form(classifier, examples), examples, rough)


def _prepare_as_before(
    prepared: Callable[..., PreparedClassifier], division: Division, engine: str
) -> PreparedClassifier:
    """The classifier in the form, micro-batch and engine of the division, else the fastest form.

    An engine of the division that does not run here is replaced by the exact one.
    """
    repeated = partial(prepared, micro_batch=division.micro_batch, speedups=division.form)
    if division.engine is None:
        return repeated(engine=engine)
    try:
        return repeated(engine=division.engine)
    except ClassifierError:
        return repeated(engine=EAGER)


def _describe_budget(budget: Budget, data: Data) -> BudgetRecord:
    range_of = None if data.layout is None else data.layout.text
    return BudgetRecord.of(budget, data.shape).model_copy(update={"share_of": range_of})


def _describe_source(source: Source, data: Data) -> SourceRecord:
    return SourceRecord(
        name=source.name,
        kind=source.kind,
        metric=source.metric,
        fixed=source.is_fixed_noise,
        fitted=source.needs_fit_split,
        options=source.options(data.shape),
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


def _task_fingerprint(data: Data, classifier: Classifier) -> str | None:
    """What tells a task from others of the same words."""
    if data.task is None:
        return None
    x, y = data.evaluate.batch(np.arange(min(PROBE_INPUTS, len(data.evaluate))))
    place = classifier.device or torch.get_default_device()
    with frozen(classifier) as model, torch.no_grad():
        return data.task.fingerprint(model.logits(x.to(place)), model.targets(y.to(place)))


def _describe_data(data: Data, classifier: Classifier) -> DataRecord:
    return DataRecord(
        name=data.name,
        classes=data.classes,
        class_names=tuple(data.class_names),
        shape=tuple(data.shape),
        split=data.split,
        resize=data.resize,
        layout=None if data.layout is None else LayoutRecord(**vars(data.layout)),
        task=None if data.task is None else data.task.words,
        task_fingerprint=_task_fingerprint(data, classifier),
        task_kind=data.task.kind or None if data.task else None,
        inputs=SplitSizes(**{each.kind.name: len(each) for each in data.splits}),
        fingerprint=data.evaluate.fingerprint(),
        notes=data.notes,
    )
