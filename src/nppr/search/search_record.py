"""Typed records of learned noise: the search that found it, and its properties.

A file of learned noise holds a `LearnedNoiseRecord`; a report holds a `DistributionRecord` for each
learned source. Nothing here imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from nppr.core.nouns import Nouns, choose_nouns
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.family import Family, Rule
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY
from nppr.search.search_settings import SearchSettings

if TYPE_CHECKING:
    from nppr.core.budget import Budget

FAMILY = "family"
"""The learned noise among select values; all other keys are names of reference noises."""

FORMAT = 3


class Record(BaseModel):
    """Frozen, with no unknown fields and no NaN or infinite numbers."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, revalidate_instances="always"
    )


class FeaturesRecord(Record):
    """The model and layer whose features the noise sees."""

    model: str
    fingerprint: str | None
    layer: str
    number: int


class ClassifierRecord(Record):
    """The classifier and what identifies it."""

    name: str
    weights: str | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    fingerprint: str
    features: FeaturesRecord | None
    weights_sha256: str | None = None
    """SHA-256 of the bytes of the weights file, or of the model's file that holds them."""


class ParameterRecord(Record):
    """One parameter of a transformation and its range."""

    name: str
    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        from nppr.core.transformations import range_text  # not before PyTorch is needed

        return range_text(self.name, self.low, self.high, self.unit)


class BudgetRecord(Record):
    """The ball of admissible perturbations; `text` is the radius as people write it.

    With a transformation the norm is `box` and the radius scales its ranges, whose ends are those of
    `parameters`; `transform` is how it is written on a command line, with the ranges of radius 1.
    """

    norm: str
    radius: float
    text: str
    transform: str | None = None
    parameters: tuple[ParameterRecord, ...] = ()
    fingerprint: str | None = None
    """Hash of the images that a user's transformation makes of fixed ones; None for others."""
    share_of: str | None = None
    """The range of the inputs that the radius is a share of; None for images in [0, 1]."""

    @classmethod
    def of(cls, budget: Budget, shape: tuple[int, ...] = ()) -> BudgetRecord:
        """The record of a budget; `shape` (C, H, W) is that of the images it is for."""
        made = budget.transform
        if made is None:
            return cls(norm=budget.norm.name, radius=budget.radius, text=budget.text)
        ranges = zip(made.names, made.ranges_at(budget.radius), made.units, strict=True)
        parameters = tuple(
            ParameterRecord(name=name, low=low, high=high, unit=unit)
            for name, (low, high), unit in ranges
        )
        return cls(
            norm=budget.norm.name,
            radius=budget.radius,
            text=budget.text,
            transform=made.spec,
            parameters=parameters,
            fingerprint=made.fingerprint(shape) if shape else None,
        )

    @property
    def nouns(self) -> Nouns:
        """The words for what the budget admits."""
        return choose_nouns(self.norm, images=self.share_of is None)

    @property
    def pixel_unit(self) -> float:
        """The amplitude of pixel values that pictures of perturbations are amplified against."""
        return 1.0 if self.parameters else self.radius

    @property
    def radius_label(self) -> str:
        """The axis of radii in a figure."""
        return self.nouns.radius if self.parameters else f"{self.nouns.radius} ({self.norm})"

    def at(self, radius: float, text: str) -> str:
        """The budget at another radius, whose text is given, for readers."""
        if not self.parameters:
            share = f" of the range {self.share_of}" if self.share_of else ""
            return f"{self.norm} {text}{share}"
        return self.text if radius == self.radius else f"{text} of the ranges {self.text}"

    def __str__(self) -> str:
        return self.at(self.radius, self.text)


class SearchCurve(Record):
    """The values of a stage on the select split while it was searched."""

    restarts: tuple[float, ...]
    """After the first round of each restart, the lowest first."""
    rounds: tuple[float, ...]
    """After every round of the best restart."""
    calls: int
    """Calls of all restarts and rounds."""
    flat: bool
    """Whether the last round gained less than a percentage point; otherwise all calls were used."""


class StageRecord(Record):
    """One stage of a search; `rung` is what its noise may depend on.

    Dependency, components and floor are those of what it selected.
    """

    stage: str
    rung: Dependency
    selected: str
    dependency: Dependency
    components: int
    floor: float
    select_values: dict[str, float]
    fit_calls: int
    forward_calls: int
    loss: tuple[float, ...]
    running_pr: tuple[float, ...]
    curve: SearchCurve | None = None
    """None for a fit of the paper's preset, which is not judged."""
    all_calls: float | None = None
    """Select value after all of the calls, of the best variant of what was fitted."""
    select_inputs: int = 0
    structure: str = ANY
    """The structure of its noise."""

    def rounded(self) -> StageRecord:
        """Return the record with loss and running PR to six decimals, which is enough to plot them."""
        loss, running_pr = (
            tuple(round(each, 6) for each in known) for known in (self.loss, self.running_pr)
        )
        return self.model_copy(update={"loss": loss, "running_pr": running_pr})


class ReferenceChoice(Record):
    """The worst on the select split among the learned family and the reference noises.

    `winner` is the name of a reference noise, or None where the family itself was worst.
    """

    winner: str | None
    select_values: dict[str, float]


class SearchConditions(Record):
    """Conditions of a search beside its settings; comparisons need equal conditions."""

    fit_inputs: int
    select_inputs: int
    seed: int
    quantise: bool
    fingerprint: str | None
    """The classifier's fingerprint."""


class SearchRecord(Record):
    """The search that found learned noise."""

    selected: str
    select_value: float | None
    references: ReferenceChoice | None
    stages: tuple[StageRecord, ...]
    fit_calls: int
    forward_calls: int
    settings: SearchSettings
    conditions: SearchConditions


class Diagnostics(Record):
    """Properties of learned noise: how many components it uses, and how random it is.

    Those of the weights are computed for every context and averaged: a distribution that uses one
    component per class is sharp, although all components are used. The entropy ratio of one component
    is 1. `realised_std` is the standard deviation of delta / radius per pixel over the draws of one
    input, as a root mean square over pixels and inputs: 0 is one fixed pattern per input. In l2 the
    radius is that of one pixel, r / sqrt(D). `share_at_edge` is the fraction of pixels (linf) or of
    draws (l2) at the edge of the budget.
    """

    entropy_ratio: float
    max_weight: float
    min_weight: float
    std_weight: float
    effective_components: float
    realised_std: float
    share_at_edge: float
    scale: float
    floor: float
    parameters: Mapping[str, float] = {}
    """The median of each parameter of a transformation, over draws and inputs."""


GIVEN = ", given by "
"""In the name of a candidate that was learned on another model, before the name of that model."""


class DistributionRecord(Record):
    """Learned noise; `name` is that of its rows and of its lines in `per_input.csv`.

    `fit_seed` is the number of a repeated search, None for the search that was chosen.
    """

    name: str
    fit_seed: int | None
    budget: BudgetRecord
    family: Family
    rule: Rule
    features: int
    search: SearchRecord
    diagnostics: Diagnostics

    @property
    def dependency(self) -> Dependency:
        """The rung it was searched on; noise of a rung above may have been kept there."""
        stages = self.search.stages
        return stages[-1].rung if stages else self.search.settings.family.dependency

    @property
    def structure(self) -> str:
        """The structure of the admissible set that was searched."""
        stages = self.search.stages
        return stages[-1].structure if stages else self.family.structure

    @property
    def admissible(self) -> AdmissibleSet:
        """The set it was searched in."""
        return AdmissibleSet(self.dependency, self.structure, self.family.floor)

    @property
    def given(self) -> str | None:
        """The model that it was learned on where it was given to the search, or None."""
        return self.search.selected.partition(GIVEN)[2] or None

    @property
    def winner(self) -> str | None:
        """The reference noise that was worse on the select split, or None."""
        return self.search.references.winner if self.search.references else None


class LawRecord(Record):
    """Everything that a distribution is built from, beside its tensors."""

    family: Family
    rule: Rule
    shape: tuple[int, int, int]
    classes: int
    features: int


class FinishedStageRecord(Record):
    """The record in the file of a finished stage; its histories are not rounded."""

    identity: str
    stage: StageRecord
    select_value: float | None
    references: ReferenceChoice | None
    fitted: LawRecord
    selected: LawRecord


class LearnedNoiseRecord(LawRecord, DistributionRecord):
    """The record in a distribution file, which can be used without its run."""

    format: int = FORMAT
    nppr_version: str
    class_names: tuple[str, ...]
    classifier: ClassifierRecord | None
    data: str
    seed: int
