"""Splitting within a run: it takes over for inputs without a failure among their draws.

The sources share the calls evenly; what one leaves the next may use. Inputs are followed in a seeded
order, as many as the calls allow to be followed down to RARE_FLOOR, in groups that are kept when they
are finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from nppr.core.tally import Claim, Direction, Estimate, Evaluate, IntArray, Metric, Progress, Tally
from nppr.data import stratified_order
from nppr.errors import RunStopped
from nppr.rare import (
    CombinedFailures,
    Rare,
    Status,
    add_rare_failures,
    estimate_rare_failures,
    format_rare_csv,
    join_rare,
    read_rare,
    write_rare,
)
from nppr.report.model import RareRecord
from nppr.report.number import SPLITTING, Number
from nppr.run.assessment_run import AssessmentRun
from nppr.run.make_numbers import make_numbers
from nppr.settings import RARE_CALLS_PER_INPUT, RARE_FLOOR
from nppr.sources import Source
from nppr.statistics.noise_sets import Contaminated
from nppr.system.records import write_whole

GROUP = 32
"""Inputs whose runs are made together and kept together."""


@dataclass(frozen=True, eq=False)
class Followed:
    """What splitting found for a source, and all inputs' failure probabilities with it."""

    rare: Rare
    unbroken: int
    combined: CombinedFailures

    def record(self, tally: Tally[Evaluate]) -> RareRecord:
        rare = self.rare
        return RareRecord(
            source=rare.source,
            unbroken=self.unbroken,
            followed=len(rare.positions),
            found=rare.status.count(Status.FOUND),
            below=rare.status.count(Status.BELOW),
            out_of_calls=rare.status.count(Status.OUT_OF_CALLS),
            particles=rare.particles,
            replicates=rare.replicates,
            calls=_spent(rare),
            independent_draws=rare.particles * rare.replicates,
            limit=float(rare.limit.max()),
            largest=float(rare.p.max()),
            median=float(np.median(rare.p)),
            added=self.combined.added(tally.clean_correct),
        )


def follow_rare_failures(
    run: AssessmentRun, sources: Sequence[Source]
) -> tuple[dict[str, Followed], list[Number]]:
    """Follow rare failures of every source whose numbers splitting can move; return its rows too."""
    found: dict[str, Followed] = {}
    rows: list[Number] = []
    moved = [each for each in sources if each.name in run.tallies and each.moved_by_splitting]
    calls = run.settings.rare_calls or 0
    for left, source in zip(range(len(moved), 0, -1), moved, strict=True):
        tally = run.tallies[source.name]
        try:
            with run.timed(f"rare {source.name}"):
                seen = _follow(run, source, tally, calls // left)
        except RunStopped:
            raise
        except Exception as error:  # the others' results are kept
            rows.append(run.failed(source, error))
            continue
        if seen is not None:
            calls -= _spent(seen.rare)
            found[source.name] = seen
            rows += _rows(source, tally, seen, run.settings.confidence)
    if run.folder and found:
        text = format_rare_csv({name: each.rare for name, each in found.items()})
        write_whole(run.folder.place("rare.csv"), text)
    return found, rows


def _follow(
    run: AssessmentRun, source: Source, tally: Tally[Evaluate], calls: int
) -> Followed | None:
    """Follow inputs that are correct when clean and in all draws; None where there are none."""
    unbroken = np.flatnonzero(tally.clean_correct & tally.unbroken)
    split = run.data.evaluate
    order = stratified_order(split.labels[unbroken], split.indices[unbroken], run.settings.seed)
    places = np.sort(unbroken[order[: calls // RARE_CALLS_PER_INPUT]])
    if not len(places):
        return None
    found: list[Rare] = []
    for start in range(0, len(places), GROUP):
        before, some = sum(map(_spent, found)), places[start : start + GROUP]
        found.append(_follow_group(run, source, some, calls // len(places), before, calls))
    rare = replace(join_rare(found), source=source.name)
    return Followed(rare, len(unbroken), add_rare_failures(tally, rare))


def _follow_group(
    run: AssessmentRun, source: Source, places: IntArray, each: int, before: int, total: int
) -> Rare:
    """The results of some inputs, from the file where they are kept already."""
    path, identity = None, ""
    if run.folder is not None:
        which = hashlib.sha256(f"{source.name} {places.tolist()}".encode()).hexdigest()[:16]
        path = run.folder.place(f"rare/{which}.safetensors")
        identity = run.folder.identity
        if (known := read_rare(path, identity)) is not None:
            return known

    def report(state: Progress) -> None:
        if run.progress is not None:
            name = f"rare {source.name}"
            run.progress(Progress(name, before + state.done, total, state.correct))

    moved = source.moved_by_splitting
    assert moved is not None
    found = estimate_rare_failures(
        moved, run.classifier, run.data.evaluate, places, calls=each * len(places),
        seed=run.settings.seed, confidence=run.settings.confidence, floor=RARE_FLOOR,
        progress=report,
    )  # fmt: skip
    if path is not None:
        write_rare(path, found, identity)
    return found


def _rows(
    source: Source, tally: Tally[Evaluate], seen: Followed, confidence: float
) -> list[Number]:
    """Draws and splitting together: inputs that failed in some draw keep their fraction of failures.

    The intervals, `mean -+ z e` with the standard error e of draws and splitting, apply to this test
    set. They are an indication: failures to which the margin does not lead are missing.
    """
    among = tally.clean_correct
    p, errors = seen.combined.failures[among], seen.combined.errors[among]
    z = float(scipy.special.ndtri((1 + confidence) / 2))
    bound, searched = source.metric is Metric.BOUND, source.metric is Metric.NPPR
    rows = []
    for noise in source.noise_sets or (Contaminated(),):
        correct = 1 - noise.h(p)
        slopes = noise.slope(np.clip(p, 1e-12, 1 - 1e-12))
        error = float(np.sqrt(np.square(slopes * errors).sum())) / len(correct)
        value = float(correct.mean())
        estimate = Estimate(
            metric=Metric.INFIMUM if bound else source.metric,
            value=value,
            low=max(0.0, value - z * error),
            high=min(1.0, value + z * error),
            confidence=confidence,
            method=SPLITTING,
            claim=Claim.TEST_SET,
            direction=Direction.UPPER_BOUND if searched else Direction.ESTIMATE,
            inputs=len(correct),
            draws=tally.draws,
            calls=tally.calls + _spent(seen.rare),
            **({**noise.facts, "sees_input": True} if bound else {}),
        )
        rows += make_numbers(source, [estimate])
    return rows


def _spent(rare: Rare) -> int:
    return int(rare.calls.sum())
