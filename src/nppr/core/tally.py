"""Basic types of the library: splits, tallies, estimates, and the classifier that sources see.

    classifier + data -> source -> measure -> tally -> estimate -> report

Letters of shapes, here and everywhere: S draws, B inputs, K components, D latent dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nppr.errors import SplitError

if TYPE_CHECKING:
    from torch import Tensor


BoolArray = NDArray[np.bool_]
ByteArray = NDArray[np.uint8]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class SplitKind:
    """The purpose of a split of the data. The three splits never share an input."""

    name: ClassVar[str]


class Fit(SplitKind):
    """Inputs for fitting a distribution."""

    name = "fit"


class Select(SplitKind):
    """Inputs for choosing among fitted distributions."""

    name = "select"


class Evaluate(SplitKind):
    """Inputs for the reported numbers, and for nothing else."""

    name = "evaluate"


S = TypeVar("S", bound=SplitKind, covariant=True)


class Metric(StrEnum):
    """The quantity that a number measures."""

    ACCURACY = "accuracy"
    PR = "PR"
    AR = "AR"
    NPPR = "NPPR"
    NORMALISED_ACCURACY = "normalised_accuracy"
    CORRUPTION = "corruption"
    STRESS = "stress"
    NORMALISED_STRESS = "normalised_stress"
    BOUND = "bound"
    INFIMUM = "infimum"
    PROB_ACC = "prob_acc"

    @property
    def is_loss(self) -> bool:
        """Whether it is a loss rather than a fraction."""
        return self in (Metric.STRESS, Metric.NORMALISED_STRESS)

    @property
    def is_searched(self) -> bool:
        """Whether it results from a search for the worst perturbation, and so is an upper bound."""
        return self in (Metric.AR, Metric.NPPR)

    @property
    def is_drawn(self) -> bool:
        """Whether it is the fraction of correct draws of noise."""
        return self in (Metric.PR, Metric.NPPR)

    @property
    def is_outcome(self) -> bool:
        """Whether each input has one outcome: all of its draws are correct, or not."""
        return self in (Metric.AR, Metric.CORRUPTION)

    @property
    def is_of_clean_correct(self) -> bool:
        """Whether it covers only the clean-correct inputs, which are correct without noise."""
        return self.is_searched or self.is_drawn or self.is_outcome


class Claim(StrEnum):
    """The inputs that an interval applies to: this test set or the population."""

    TEST_SET = "this test set"
    POPULATION = "the population"


class Direction(StrEnum):
    """Whether a number estimates the quantity or bounds it."""

    ESTIMATE = "estimate"
    UPPER_BOUND = "upper bound"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True)
class Audit:
    """How the decisions that a coarse copy of the model took alone were checked.

    The model repeated each decision with probability `share`, independently of the image. If it
    contradicted one of them, all were `discarded` and the source was measured exactly.
    """

    share: float
    alone: int
    audited: int
    discarded: bool = False


@dataclass(frozen=True, eq=False)
class Tally(Generic[S]):
    """Clean correctness and number of correct draws of each input.

    All inputs of the split are kept, with a `clean_correct` mask, so that all numbers come from one
    measurement. Arrays have one entry per input, in the order of the split. `micro_batch` is its
    final size. `sums` `(N, M)` are the logarithms that the source observed. `outcomes`
    `(N, draws / 8)` has one bit per draw, 1 if correct, for sources that keep them. `audit` is None
    for exact counts.
    """

    kind: type[S]
    indices: IntArray
    labels: IntArray
    clean_correct: BoolArray
    correct: IntArray
    draws: int
    calls: int
    micro_batch: int
    sums: FloatArray | None = None
    outcomes: ByteArray | None = None
    audit: Audit | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the model decided every draw."""
        return self.audit is None or self.audit.discarded

    @property
    def rates(self) -> FloatArray:
        """Fraction of correct draws of each input."""
        return self.correct / self.draws

    @property
    def headline_rates(self) -> FloatArray:
        """Fraction of correct draws of each clean-correct input (Algorithm 2)."""
        return self.rates[self.clean_correct]

    @property
    def unbroken(self) -> BoolArray:
        """Whether each input was classified correctly under every draw."""
        unbroken: BoolArray = self.correct == self.draws
        return unbroken


def require_evaluate(tally: Tally[Evaluate]) -> None:
    """Raise `SplitError` unless the tally is of the evaluate split (its type requires it too)."""
    if tally.kind is not Evaluate:
        raise SplitError(
            f"only a tally of the 'evaluate' split may be reported, got one of {tally.kind.name!r}."
            " Measure the source on data.evaluate."
        )


@dataclass(frozen=True)
class Estimate:
    """A number with everything needed to quote it.

    `gamma` is that of `prob_acc`, `order` is the q of stress. A bound also states the kind and size
    of its noise set (`nppr.statistics.noise_sets`), its reference, and whether the noise may see
    the input.
    """

    metric: Metric
    value: float
    low: float
    high: float
    confidence: float
    method: str
    claim: Claim
    direction: Direction
    inputs: int
    draws: int
    calls: int
    split: str = Evaluate.name
    flags: tuple[str, ...] = ()
    gamma: float | None = None
    noise_set: str | None = None
    density_ratio: float | None = None
    size: float | None = None
    sees_input: bool | None = None
    reference: str | None = None
    order: float | None = None


class FrozenModel(Protocol):
    """The classifier as sources use it: in eval mode; sources must not change it."""

    calls: int
    """Number of images classified so far."""

    def logits(self, x: Tensor) -> Tensor:
        """Return logits `(B, classes)` of `(B, C, H, W)` in [0, 1], differentiable if the model is."""

    def gradient(self, loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient in `x` of the sum of `loss(logits)`, `(B, C, H, W)`, and the logits."""

    def to_classes(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(logits, labels)`; for a task, two scores (incorrect, correct) and label 1."""

    def attacked_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss that attacks maximise, `(B,)`: cross-entropy, or minus a task's score."""

    def targets(self, y: Tensor) -> Tensor:
        """Return the targets of answers: the labels, or the targets of a task."""

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate features, `(B, F)`."""


@dataclass(frozen=True)
class Progress:
    """Progress of a measurement: images judged so far, correct answers among them, total images."""

    source: str
    done: int
    total: int
    correct: int

    @property
    def shown(self) -> tuple[str, int, int, str]:
        """The name, the amount done, the total, and a remark."""
        share = f"{100 * self.correct / max(1, self.done):.1f} % correct"
        return self.source, self.done, self.total, share
