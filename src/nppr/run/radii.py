"""All sources of the budget again, at other radii."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, cast

from nppr.budget import Budget
from nppr.errors import SpecError
from nppr.report.rows import rows_of
from nppr.report.schema import AtRadius, Result
from nppr.run.session import Session
from nppr.sources import CustomAttack, CustomNoise
from nppr.types import Evaluate, PerturbationSource, Tally

__all__ = ["at_radii"]

logger = logging.getLogger(__name__)


def at_radii(
    session: Session, sources: Sequence[PerturbationSource], clean: Tally[Evaluate], norm: str
) -> list[AtRadius]:
    """The results of all sources that have a budget, at the radii of the settings.

    Learned noise is scaled to the radius and not fitted again; what is fitted to a radius is.
    """
    found = []
    for text in session.settings.radii:
        budget = Budget.parse(norm, text)
        rows: list[Result] = []
        for source in sources:
            if source.budget is not None:
                rows += _rows(session, source, clean, budget)
        found.append(AtRadius(radius=budget.radius, text=text, results=tuple(rows)))
    return found


def _moved(source: PerturbationSource, budget: Budget) -> PerturbationSource:
    """The same source at another radius."""
    own: Any = source  # a source of ours is a dataclass
    if is_dataclass(own) and not isinstance(own, CustomNoise | CustomAttack):
        return cast("PerturbationSource", replace(own, budget=budget))  # type: ignore[type-var]
    raise SpecError(
        f"source {source.name!r} has one radius only: its code is not told another."
        " Leave it out of a run with radii."
    )


def _rows(
    session: Session, source: PerturbationSource, clean: Tally[Evaluate], budget: Budget
) -> list[Result]:
    """Those of the source's own metric."""
    try:
        moved = session.ready(_moved(source, budget))
        stored = f"{source.name}@{budget.radius!r}"
        tally = session.measure(moved, clean.right == 1, stored=stored)
        rows = rows_of(moved, tally, clean, session.settings.confidence, session.settings.seed)
        return [row for row in rows if row.metric is source.metric]
    except Exception as error:  # the others' results are kept
        logger.debug("source %s failed at %s", source.name, budget, exc_info=True)
        return [session.failed(source.name, source.metric, error)]
