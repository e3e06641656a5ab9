"""The warnings that a run can carry: `docs/flags.md` says what each means and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from nppr.data import Data, overlaps
from nppr.report.schema import Flag, Result
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED

__all__ = [
    "ATTACK_FAILS",
    "ATTACK_PARTS",
    "ATTACK_TOO_WEAK",
    "BATCH_DEPENDENT",
    "CLASS_IMBALANCE",
    "EXPLODING_GRADIENTS",
    "FEW_DRAWS",
    "FEW_INPUTS",
    "FLAGS",
    "GRADIENT_MASKING",
    "LOOK_SCALED",
    "MODEL_CHANGED",
    "NAN_GRADIENTS",
    "NEARLY_DETERMINISTIC",
    "NEAR_CHANCE",
    "NOT_LOGITS",
    "NO_FEATURES",
    "NO_FIT_DATA",
    "NO_GRADIENTS",
    "NPPR_ABOVE_PARENT",
    "NPPR_ABOVE_PR",
    "ONE_COMPONENT",
    "OUT_OF_RANGE",
    "OVERLAP",
    "PRECISION",
    "RANDOMISED",
    "RARE_PARTLY",
    "SEVERITY",
    "TRAIN_MODE",
    "ZERO_GRADIENTS",
    "Severity",
    "flag",
    "overlap_flags",
    "result_flags",
]


class Severity(StrEnum):
    """How much a flag takes from the trust in a number, least first."""

    INFORMATION = "information"
    NOTE = "note"
    WARNING = "warning"
    SERIOUS = "serious"


NO_GRADIENTS = "no-gradients"
NO_FIT_DATA = "no-fit-data"
NO_FEATURES = "no-features"
OVERLAP = "overlapping-splits"
OUT_OF_RANGE = "inputs-out-of-range"
LOOK_SCALED = "inputs-look-scaled"
CLASS_IMBALANCE = "class-imbalance"
TRAIN_MODE = "train-mode"
MODEL_CHANGED = "model-changed"
RANDOMISED = "randomised"
BATCH_DEPENDENT = "batch-dependent"
NOT_LOGITS = "not-logits"
ZERO_GRADIENTS = "zero-gradients"
NAN_GRADIENTS = "nan-gradients"
EXPLODING_GRADIENTS = "exploding-gradients"
ATTACK_FAILS = "attack-fails-at-huge-radius"
GRADIENT_MASKING = "gradient-masking"
ATTACK_TOO_WEAK = "attack-too-weak"
FEW_DRAWS = "few-draws"
FEW_INPUTS = "few-inputs"
NEAR_CHANCE = "near-chance"
NPPR_ABOVE_PR = "nppr-above-pr"
NPPR_ABOVE_PARENT = "nppr-above-parent"
ONE_COMPONENT = "one-component"
NEARLY_DETERMINISTIC = "nearly-deterministic"
ATTACK_PARTS = "attack-parts"
PRECISION = "precision-not-reached"
RARE_PARTLY = "rare-partly"

FLAGS = {
    APPROXIMATE: "fewer than 400 inputs, a mean outside 10-90 % or a confidence above 99 %: the"
    " approximate interval is outside the regime it was tested in; quote a guaranteed one",
    NO_GRADIENTS: "skipped: the source needs gradients and the model gives none",
    NO_FEATURES: "the model shows no features, so the learned noise may depend on the label only;"
    " name a layer with --features or another model with --feature-model",
    NO_FIT_DATA: "skipped: NPPR is fitted and chosen on other inputs than those evaluated, and the data"
    " have none",
    OVERLAP: "an input that was fitted or chosen on says too much about itself; remove the copies",
    OUT_OF_RANGE: "pixels must lie in [0, 1]; give the normalisation as --mean and --std",
    LOOK_SCALED: "the images are almost black, apparently divided by 255 twice",
    CLASS_IMBALANCE: "the numbers speak mostly about the frequent classes",
    TRAIN_MODE: "it is measured in eval mode, in which a classifier is used",
    MODEL_CHANGED: "being called in eval mode changes the model, so its answers depend on what it was"
    " asked before",
    RANDOMISED: "two passes over the same images differ beyond rounding, so a wrong answer need not be"
    " the perturbation's doing",
    BATCH_DEPENDENT: "the answer for an image depends on the other images of the batch, so the numbers"
    " depend on the batch size",
    NOT_LOGITS: "attacks and fits climb a flat loss, so AR and NPPR may be too high; give the model"
    " without its last activation",
    ZERO_GRADIENTS: "attacks and fits do not know where to go, so AR and NPPR may be too high",
    NAN_GRADIENTS: "attacks and fits stop there, so AR and NPPR may be too high",
    EXPLODING_GRADIENTS: "steps along them are mostly rounding, so AR and NPPR may be too high",
    ATTACK_FAILS: "an attack that may reach any image should break nearly all, so AR and NPPR may be"
    " too high",
    GRADIENT_MASKING: "gradients mislead the attack, so AR is too high; read the merged row",
    ATTACK_TOO_WEAK: "AR of the attack is too high; read the merged row, or give it more steps and"
    " restarts",
    FEW_DRAWS: "fewer than 10 draws an input: the mean stands, but little is known about single inputs"
    " and rare failures",
    FEW_INPUTS: "with fewer than 30 a guaranteed interval may go 19 points to either side",
    NEAR_CHANCE: "a classifier that guesses cannot lose much to noise; check the weights, the"
    " normalisation and the order of the classes",
    NPPR_ABOVE_PR: "the search stopped early; read the row 'nppr or noise', or give --fit-calls",
    NPPR_ABOVE_PARENT: "less noise was admitted there, so the search stopped early; read the lower"
    " number for both, or give --fit-calls",
    ONE_COMPONENT: "nearly all noise of an input comes from one component of the mixture, which may be"
    " another for another input",
    UNRESOLVED: "too few draws to tell an input's own probability from 1 - gamma: prob_acc of that"
    " gamma says what was seen, not what is",
    PRECISION: "the intervals are as wide as they are shown",
    RARE_PARTLY: "the others count as never failing; allow more --rare-calls",
    ATTACK_PARTS: "that part of AutoAttack needs more classes; the others ran",
    NEARLY_DETERMINISTIC: "the noise is one pattern an input, close to an attack; a floor asks for"
    " randomness",
}
"""What a flag says, unless what was found comes before it."""

SEVERITY = {
    ONE_COMPONENT: Severity.INFORMATION,
    NEARLY_DETERMINISTIC: Severity.INFORMATION,
    ATTACK_PARTS: Severity.INFORMATION,
    UNRESOLVED: Severity.INFORMATION,
    APPROXIMATE: Severity.NOTE,
    PRECISION: Severity.NOTE,
    RARE_PARTLY: Severity.NOTE,
    NO_GRADIENTS: Severity.NOTE,
    NO_FEATURES: Severity.NOTE,
    NO_FIT_DATA: Severity.NOTE,
    CLASS_IMBALANCE: Severity.NOTE,
    TRAIN_MODE: Severity.NOTE,
    FEW_DRAWS: Severity.NOTE,
    FEW_INPUTS: Severity.NOTE,
    NOT_LOGITS: Severity.WARNING,
    ZERO_GRADIENTS: Severity.WARNING,
    NAN_GRADIENTS: Severity.WARNING,
    EXPLODING_GRADIENTS: Severity.WARNING,
    ATTACK_FAILS: Severity.WARNING,
    GRADIENT_MASKING: Severity.WARNING,
    ATTACK_TOO_WEAK: Severity.WARNING,
    NPPR_ABOVE_PR: Severity.WARNING,
    NPPR_ABOVE_PARENT: Severity.WARNING,
    OVERLAP: Severity.SERIOUS,
    OUT_OF_RANGE: Severity.SERIOUS,
    LOOK_SCALED: Severity.SERIOUS,
    MODEL_CHANGED: Severity.SERIOUS,
    RANDOMISED: Severity.SERIOUS,
    BATCH_DEPENDENT: Severity.SERIOUS,
    NEAR_CHANCE: Severity.SERIOUS,
}
"""A note: the numbers stand. A warning: one is off in a known direction. Serious: one means another
thing than it says."""


def flag(name: str, found: str | None = None, source: str | None = None) -> Flag:
    """The flag of this id: what was found, then what that means.

    >>> flag("train-mode", "2 layers are in training mode").message
    '2 layers are in training mode: it is measured in eval mode, in which a classifier is used'
    """
    meaning = FLAGS[name]
    return Flag(id=name, source=source, message=f"{found}: {meaning}" if found else meaning)


def overlap_flags(data: Data) -> tuple[Flag, ...]:
    """Identical images in two splits, where there are any."""
    return tuple(
        Flag(
            id=OVERLAP,
            source=None,
            message=f"{count:,} images of the {second} part are in the {first} part too",
        )
        for (first, second), count in overlaps(data).items()
        if count
    )


def result_flags(results: Sequence[Result]) -> tuple[Flag, ...]:
    """The flags of all results, each source's once."""
    seen = {(name, row.source): None for row in results for name in row.flags}
    return tuple(flag(name, source=source) for name, source in seen)
