"""Everything of a run that is shown and is not a number of the report, drawn again at its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from nppr.budget import Budget
from nppr.classifiers import Prepared
from nppr.collect.draws import draws
from nppr.collect.job import Job
from nppr.collect.worst import shown, worst
from nppr.data import Data
from nppr.report.evidence import Evidence
from nppr.search.learned_noise import LearnedNoise
from nppr.sources import learned_name
from nppr.types import Evaluate, PerturbationSource, Tally

__all__ = ["collect"]

logger = logging.getLogger(__name__)


def collect(
    classifier: Prepared,
    data: Data,
    tallies: Mapping[str, Tally[Evaluate]],
    clean: Tally[Evaluate],
    sources: Sequence[PerturbationSource],
    fitted: Sequence[LearnedNoise],
    *,
    budget: Budget,
    seed: int = 0,
    quantise: bool = False,
) -> Evidence:
    """Draw again what a page shows.

    `tallies` are those of `sources` and of the learned sources, by name; `clean` is the measurement
    without noise; `budget` gives the radius for sources that have none. A source that fails is left
    out.
    """
    right = np.flatnonzero(clean.right == 1)
    if not len(right):
        return Evidence()
    job = Job(classifier, data, seed, quantise)
    failing, drawn = [], []
    learned = [each.source for each in fitted if "fit-seed" not in each.source.name]
    plain = sorted(fitted, key=lambda each: each.source.name != learned_name(0))
    winner = plain[0].winner if plain else None
    for source in shown([*sources, *learned], tallies, winner):
        try:
            failing.append(worst(job, source, tallies[source.name], right, source.budget or budget))
        except Exception:  # whatever a source does, the run's numbers are kept
            logger.warning("the worst inputs under %s are not shown", source.name, exc_info=True)
    for noise in learned:
        try:
            drawn.append(draws(job, noise, right))
        except Exception:
            logger.warning("the draws of %s are not shown", noise.name, exc_info=True)
    return Evidence(tuple(failing), tuple(drawn))
