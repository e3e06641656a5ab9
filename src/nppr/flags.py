"""The warnings that a run can carry: `docs/flags.md` says what each means and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from nppr.data import Data, overlaps
from nppr.report.schema import Flag, Result
from nppr.statistics.estimates import APPROXIMATE

__all__ = [
    "FLAGS",
    "NO_FEATURES",
    "NO_FIT_DATA",
    "NO_GRADIENTS",
    "OVERLAP",
    "overlap_flags",
    "result_flags",
]

NO_GRADIENTS = "no-gradients"
NO_FIT_DATA = "no-fit-data"
NO_FEATURES = "no-features"
OVERLAP = "overlapping-splits"
FLAGS = {
    APPROXIMATE: "fewer than 400 inputs, a mean outside 10-90 % or a confidence above 99 %: the"
    " approximate interval is outside the regime it was tested in; quote a guaranteed one",
    NO_GRADIENTS: "skipped: the source needs gradients and the model gives none",
    NO_FEATURES: "the model shows no features, so the learned noise may depend on the label only;"
    " name a layer with --features or another model with --feature-model",
    NO_FIT_DATA: "skipped: NPPR is fitted and chosen on other inputs than those evaluated, and the data"
    " have none",
}


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
    seen = {(flag, row.source): None for row in results for flag in row.flags}
    return tuple(Flag(id=flag, source=source, message=FLAGS[flag]) for flag, source in seen)
