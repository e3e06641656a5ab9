"""All flags that a run can raise, each declared once, and the grade that they give.

`docs/flags.md` explains each flag and what to do about it.

A  no flags, or information only
B  notes: the numbers hold, with a restriction
C  a warning: a number may be off in a known direction or is missing
D  serious: a number does not mean what it states, or there is none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from nppr.core.tally import Direction, Metric
from nppr.data import Data, overlaps
from nppr.report.model import AuditRecord, Flag, Grade, ReportRecord
from nppr.report.number import Number
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED


class Severity(StrEnum):
    """How much a flag reduces the trust in a number, least first."""

    INFORMATION = "information"
    NOTE = "note"
    WARNING = "warning"
    SERIOUS = "serious"


SEVERITY: dict[str, Severity] = {}
MEANING: dict[str, str] = {}
"""Meanings of flags. The message of a flag is its finding followed by its meaning."""


def _declare(name: str, severity: Severity, meaning: str) -> str:
    SEVERITY[name], MEANING[name] = severity, meaning
    return name


_I, _N, _W, _S = Severity

# fmt: off
ONE_COMPONENT = _declare("one-component", _I,
    "nearly all draws of an input come from one component of the mixture, which may differ between"
    " inputs")
NEARLY_DETERMINISTIC = _declare("nearly-deterministic", _I,
    "the distribution found is nearly one fixed perturbation for each input, on the rung independent"
    " the same for all, like a camera that is mounted askew; a floor above 0 excludes it")
ATTACK_PARTS = _declare("attack-parts", _I,
    "these parts of AutoAttack need more classes; the other parts ran")
_declare(UNRESOLVED, _I,
    "too few draws to distinguish an input's own probability from 1 - gamma: prob_acc at that gamma"
    " describes the draws, not the input")
_declare(APPROXIMATE, _N,
    "fewer than 400 inputs, a mean outside 10-90 % or a confidence above 99 %: the approximate"
    " interval is outside the regime it was tested in; quote a guaranteed one, or do not quote a number"
    " that has none, such as the normalised accuracy")
QUICK_RUN = _declare("quick-run", _N,
    "a quick run takes few calls and draws: NPPR may be far too high and intervals are wide; repeat it"
    " with --effort normal before you quote a number")
PRECISION = _declare("precision-not-reached", _N, "the intervals are as wide as shown")
SCREENED = _declare("screened", _N,
    "16-bit floats took the clear decisions; lower bounds and merged AR need exact counts and leave"
    " these sources out")
CONTRADICTED = _declare("screening-contradicted", _N,
    "the model contradicted an audited decision of 16-bit floats, so this source was measured exactly;"
    " leave out --engine bfloat16 for this model")
RARE_PARTLY = _declare("rare-partly", _N, "the others count as never failing; allow more --rare-calls")
NO_GRADIENTS = _declare("no-gradients", _N,
    "skipped: the source needs gradients and the model gives none")
BY_SCORES = _declare("by-scores", _N,
    "the search followed the model's answers alone, without gradients: worse noise may exist, above all"
    " noise that depends on the input; a search by gradients, on a PyTorch or .pt2 version of the"
    " model, may find it")
NO_FEATURES = _declare("no-features", _N,
    "the model shows no features, so what is learned may depend on the label only; name a layer"
    " with --features or another model with --feature-model")
NO_FIT_DATA = _declare("no-fit-data", _N,
    "skipped: NPPR is fitted and selected on inputs other than those evaluated, and the data have"
    " none")
CLASS_IMBALANCE = _declare("class-imbalance", _N, "the numbers mostly describe the frequent classes")
TRAIN_MODE = _declare("train-mode", _I, "the model is measured in eval mode, as it would be used")
FEW_DRAWS = _declare("few-draws", _N,
    "fewer than 10 draws per input: the mean holds, but little is known about single inputs and"
    " rare failures")
FEW_INPUTS = _declare("few-inputs", _W,
    "with fewer than 30, a guaranteed interval may have a half-width of 19 percentage points; evaluate"
    " more inputs")
SINGLE_ATTACK = _declare("single-attack", _W,
    "AR rests on this attack alone and is probably too high: others usually break more inputs; add"
    " autoattack or a second attack, or leave out --sources")
NOT_LOGITS = _declare("not-logits", _W,
    "attacks and searches climb a flat loss, so AR and NPPR may be too high; give the model without"
    " its last activation")
ZERO_GRADIENTS = _declare("zero-gradients", _W,
    "attacks and searches have no direction to follow, so AR and NPPR may be too high")
NAN_GRADIENTS = _declare("nan-gradients", _W,
    "attacks and searches stop there, so AR and NPPR may be too high")
EXPLODING_GRADIENTS = _declare("exploding-gradients", _W,
    "steps along such gradients are mostly rounding, so AR and NPPR may be too high")
ATTACK_FAILS = _declare("attack-fails-at-huge-radius", _W,
    "an attack that may reach any image should break nearly all, so AR and NPPR may be too high")
GRADIENT_MASKING = _declare("gradient-masking", _W,
    "gradients mislead the attack, so its AR is too high; read the merged row")
ATTACK_TOO_WEAK = _declare("attack-too-weak", _W,
    "AR of the attack is too high; read the merged row, or allow more steps and restarts")
NPPR_ABOVE_PR = _declare("nppr-above-pr", _W,
    "the search stopped early; read the row '... (lowest of the set)', or raise --fit-calls")
STARVED = _declare("starved", _W,
    "so NPPR may be far too high; raise --fit-calls, or provide more inputs (if the data are one"
    " split, a fifth of them chooses the noise)")
STILL_FALLING = _declare("still-falling", _W,
    "more calls would probably find worse, so NPPR may be too high; raise --fit-calls or"
    " --per-input-calls")
SEARCH_BEHIND = _declare("search-behind", _W,
    "a source of the same set is worse than what the search found, so NPPR is too high; raise"
    " --fit-calls")
SEEDS_APART = _declare("searches-differ", _W,
    "the number depends on the random start of the search, so NPPR may be too high; raise --fit-calls"
    " or --fit-seeds")
NPPR_ABOVE_PARENT = _declare("nppr-above-parent", _W,
    "a smaller set was searched there, so the search stopped early; read the lower number for both, or"
    " raise --fit-calls")
HEADLINE_MISSING = _declare("headline-missing", _W,
    "it was asked for and could not be measured, so worse than what was measured is not ruled out;"
    " its row states why")
NOTHING_MEASURED = _declare("nothing-measured", _S,
    "every source failed or was skipped: the run states nothing about robustness")
OVERLAP = _declare("overlapping-splits", _S,
    "numbers on inputs that were also fitted or selected on are biased; remove the copies")
FITTED_ON = _declare("fitted-on-evaluated", _S,
    "it was fitted on inputs it is measured on, so its number describes them and not the population;"
    " evaluate others")
NORMALISATION = _declare("normalisation", _S,
    "the numbers describe wrongly normalised inputs; give the normalisation used in training")
OUT_OF_RANGE = _declare("inputs-out-of-range", _S,
    "pixels must lie in [0, 1]; give the normalisation as --mean and --std")
LOOK_SCALED = _declare("inputs-look-scaled", _S,
    "the images are almost black, apparently divided by 255 twice")
MODEL_CHANGED = _declare("model-changed", _S,
    "calls in eval mode change the model, so its answers depend on earlier calls")
RANDOMISED = _declare("randomised", _S,
    "two passes over the same images differ beyond rounding, so a wrong answer need not be caused"
    " by the perturbation")
BATCH_DEPENDENT = _declare("batch-dependent", _S,
    "the answer for an image depends on the other images of the batch, so the numbers depend on the"
    " batch size")
NEAR_CHANCE = _declare("near-chance", _S,
    "a classifier that guesses cannot lose much to perturbations; check the weights, the normalisation"
    " and the order of the classes")
# fmt: on

_COMFORT = (Direction.ESTIMATE, Direction.LOWER_BOUND)
LIMITS: Mapping[str, tuple[Direction, ...]] = {
    **dict.fromkeys(SEVERITY, ()),
    **{name: _COMFORT for name, severity in SEVERITY.items() if severity is _W},
    **{name: tuple(Direction) for name, severity in SEVERITY.items() if severity is _S},
    # A number of a search or an attack may be too high, but it stays valid as an upper bound.
    **dict.fromkeys(
        (
            NOT_LOGITS, ZERO_GRADIENTS, NAN_GRADIENTS, EXPLODING_GRADIENTS, ATTACK_FAILS,
            GRADIENT_MASKING, ATTACK_TOO_WEAK, NPPR_ABOVE_PR, STARVED, STILL_FALLING, SEARCH_BEHIND,
            SEEDS_APART, NPPR_ABOVE_PARENT, HEADLINE_MISSING, SINGLE_ATTACK,
        ),
        (),
    ),
    FEW_INPUTS: (),  # intervals are wide but valid
    # A classifier that guesses loses little, so an unfavourable result is still true.
    NEAR_CHANCE: _COMFORT,
}  # fmt: skip
"""Directions of the numbers that each flag invalidates; by default, a serious flag invalidates all.

If numbers may be too high, a flag invalidates estimates and lower bounds, but never an upper bound:
the truth is at most that bound.
"""

GRADES = {
    Severity.SERIOUS: ("D", "a number does not mean what it states, or there is none"),
    Severity.WARNING: ("C", "a number may be off in a known direction or is missing"),
    Severity.NOTE: ("B", "the numbers hold, with notes"),
}
"""Grades, worst first; the worst flag decides."""


def flag(name: str, found: str | None = None, source: str | None = None) -> Flag:
    """Return the flag with this id; its message is the finding, followed by its meaning.

    >>> flag("train-mode", "2 layers are in training mode").message
    '2 layers are in training mode: the model is measured in eval mode, as it would be used'
    """
    meaning = MEANING[name]
    message = f"{found}: {meaning}" if found else meaning
    return Flag(
        id=name, source=source, message=message, severity=SEVERITY[name], limits=LIMITS[name]
    )


def grade(flags: Sequence[Flag]) -> Grade:
    """Return the grade, which the worst flag decides.

    >>> grade([]).letter
    'A'
    """
    for severity, (letter, words) in GRADES.items():
        deciding = dict.fromkeys(flag.id for flag in flags if SEVERITY[flag.id] is severity)
        if deciding:
            return Grade(letter=letter, reason=f"{words} ({', '.join(deciding)})")
    return Grade(letter="A", reason="no flag limits the numbers")


_SEARCHED = (
    ONE_COMPONENT, NEARLY_DETERMINISTIC, STARVED, STILL_FALLING, SEARCH_BEHIND, SEEDS_APART,
    NPPR_ABOVE_PARENT, NO_FEATURES,
)  # fmt: skip
_BY_RESULTS = {
    **{name: {Metric.NPPR} for name in _SEARCHED},
    NPPR_ABOVE_PR: {Metric.NPPR, Metric.PR},
    ATTACK_TOO_WEAK: {Metric.NPPR, Metric.AR},
    GRADIENT_MASKING: {Metric.PR, Metric.AR},
    SINGLE_ATTACK: {Metric.AR},
}
"""Flags that only results of these metrics can raise."""

_BY_GRADIENTS = (ZERO_GRADIENTS, NAN_GRADIENTS, EXPLODING_GRADIENTS, ATTACK_FAILS)


def could_be_raised(name: str, report: ReportRecord) -> bool:
    """Whether a run checked for this flag; only then is its absence good news."""
    measured = {row.metric for row in report.numbers if row.value is not None}
    if name == GRADIENT_MASKING and report.budget.transform:
        return False  # this check is not done in the box of a transformation
    if name in _BY_GRADIENTS and any(flag.id == NO_GRADIENTS for flag in report.flags):
        return False
    screened = report.settings.measure.engine != "eager"
    asked = {
        PRECISION: report.precision, RARE_PARTLY: report.settings.measure.rare_calls,
        SCREENED: screened, CONTRADICTED: screened,
    }  # fmt: skip
    return bool(asked.get(name, True)) and _BY_RESULTS.get(name, set()) <= measured


def audit_flags(audits: Sequence[AuditRecord]) -> tuple[Flag, ...]:
    """Return a flag for the decisions of 16-bit floats, and one for each source that they got wrong."""
    kept = [each for each in audits if not each.discarded]
    found = [flag(CONTRADICTED, source=each.source) for each in audits if each.discarded]
    if kept:
        alone, audited = sum(each.alone for each in kept), sum(each.audited for each in kept)
        wider = 100 * max(each.widened_by for each in kept)
        found.append(
            flag(
                SCREENED,
                f"the model repeated {audited:,} of {alone:,} decisions, and none differed; intervals"
                f" are up to {wider:.2f} percentage points wider at each end",
            )
        )
    return tuple(found)


def overlap_flags(data: Data) -> tuple[Flag, ...]:
    """Return a flag for each pair of splits with identical images."""
    return tuple(
        flag(OVERLAP, f"{count:,} images of the {second} split are in the {first} split too")
        for (first, second), count in overlaps(data).items()
        if count
    )


def number_flags(numbers: Sequence[Number]) -> tuple[Flag, ...]:
    """Return the flags of all numbers, without duplicates."""
    seen = {(name, row.name): None for row in numbers for name in row.all_flags}
    return tuple(flag(name, source=source) for name, source in seen)
