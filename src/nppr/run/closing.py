"""What a finished run says about itself: flags, entries of learned noise, what a page shows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from nppr.budget import Budget
from nppr.checks import check_results
from nppr.collect import collect
from nppr.distributed import first
from nppr.flags import PRECISION, RARE_PARTLY, flag, result_flags
from nppr.report.evidence import Evidence
from nppr.report.schema import Flag
from nppr.run.growth import Growth
from nppr.run.measured import Measured
from nppr.run.rare import Found
from nppr.search.learned_noise import LearnedNoise
from nppr.types import PerturbationSource

__all__ = ["collected", "described", "reviewed", "unfinished"]

logger = logging.getLogger(__name__)


def reviewed(measured: Measured, sources: Sequence[PerturbationSource]) -> tuple[Flag, ...]:
    """What the results say about themselves."""
    session = measured.session
    return (
        *result_flags(measured.results),
        *check_results(
            measured.results,
            measured.tallies,
            [source for source in sources if source.name in measured.tallies],
            [each.described() for each in measured.fitted],
            measured.clean,
            session.data.classes,
            session.settings.confidence,
        ),
    )


def unfinished(growth: Growth | None, rare: Mapping[str, Found]) -> tuple[Flag, ...]:
    """What was asked for and could not be had: a precision, a look at all inputs."""
    found = []
    if growth is not None and not growth.reached:
        found.append(flag(PRECISION, growth.words()))
    for name, each in rare.items():
        looked = len(each.rare.positions)
        if looked < each.unbroken:
            words = f"{looked:,} of {each.unbroken:,} inputs without a failure were looked at"
            found.append(flag(RARE_PARTLY, words, name))
    return tuple(found)


def described(fitted: LearnedNoise, measured: Measured) -> dict[str, Any]:
    """The entry of a learned source, with the values of all fits of its floor if there are more."""
    floor = fitted.source.distribution.family.floor
    values = {
        each.source.name: float(measured.tallies[each.source.name].headline_rates.mean())
        for each in measured.fitted
        if each.source.distribution.family.floor == floor and each.source.name in measured.tallies
    }
    seeds = None
    if len(values) > 1:
        lowest, highest = min(values.values()), max(values.values())
        seeds = {"values": values, "minimum": lowest, "spread": highest - lowest}
    return {**fitted.described(), "fit_seeds": seeds}


def collected(
    measured: Measured, sources: Sequence[PerturbationSource], budget: Budget
) -> Evidence | None:
    """What a page shows; failing at it never costs the run."""
    session = measured.session
    try:
        return first(
            lambda: collect(
                session.classifier,
                session.data,
                measured.tallies,
                measured.clean,
                sources,
                measured.fitted,
                budget=budget,
                seed=session.settings.seed,
                quantise=session.settings.quantise,
            )
        )
    except Exception:
        logger.warning("nothing is collected to be shown", exc_info=True)
        return None
