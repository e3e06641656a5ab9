"""Rounds of measuring, until the intervals are narrow enough or nothing is left to measure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nppr.errors import SpecError
from nppr.run.growth import Growth
from nppr.run.session import Session
from nppr.sources import Clean
from nppr.types import Metric, PerturbationSource

__all__ = ["grow"]

logger = logging.getLogger(__name__)

DRAWN = (Metric.PR, Metric.NPPR, Metric.BOUND)
"""Metrics of sources that draw, for which more draws say more."""


def grow(session: Session, sources: Sequence[PerturbationSource], failed: bool = False) -> None:
    """Leave the session with as many inputs and draws as its precision takes.

    `failed` is whether a search for a source that draws has failed.
    """
    drawn = [source for source in sources if source.metric in DRAWN]
    if not drawn and not failed:
        raise SpecError(
            "`precision` must come with a source that draws, got none. Example: --sources uniform"
        )
    growth = session.growth = Growth(session.data.evaluate, session.settings, session.folder)
    going = True
    while going:
        session.data = replace(session.data, evaluate=growth.part)
        session.settings = replace(session.settings, draws=growth.at.draws)
        right = session.measure(Clean(), np.ones(len(growth.part), bool)).right == 1
        tallies = {}
        for source in drawn:
            try:
                tallies[source.name] = session.measure(source, right)
            except Exception:  # it is told when all are measured
                logger.debug("source %s failed", source.name, exc_info=True)
        going = growth.goes_on(tallies)
