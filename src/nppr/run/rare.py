"""Splitting within a run: it takes over for inputs where plain draws saw no failure.

The sources share the calls evenly; what one leaves the next may use. Inputs are looked at in a seeded
order, as many as the calls allow to be followed down to RARE_FLOOR, in groups that are kept when they
are finished.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nppr.data import stratified_order
from nppr.distributed import gathered, span, together, world
from nppr.rare import (
    MOVABLE,
    Combined,
    Rare,
    Status,
    combined,
    joined,
    rare_failures,
    read_rare,
    write_rare,
)
from nppr.report.rows import rare_rows
from nppr.report.schema import Result
from nppr.run.session import Session
from nppr.run.settings import RARE_CALLS_PER_INPUT, RARE_FLOOR
from nppr.sources import Bound
from nppr.types import Evaluate, IntArray, PerturbationSource, Progress, Tally

__all__ = ["Found", "Splitter", "look_for_rare_failures", "movable"]

logger = logging.getLogger(__name__)

GROUP = 32
"""Inputs whose runs are made together and kept together."""


def movable(source: PerturbationSource) -> PerturbationSource | None:
    """The source whose draws splitting moves: itself, a bound's reference, or None."""
    moved = source.noise if isinstance(source, Bound) else source
    return moved if isinstance(moved, MOVABLE) else None


@dataclass(frozen=True, eq=False)
class Found:
    """What splitting found for a source, and all inputs' failure probabilities with it."""

    rare: Rare
    unbroken: int
    combined: Combined

    def described(self, tally: Tally[Evaluate]) -> dict[str, Any]:
        """Its entry in the report."""
        rare = self.rare
        return {
            "source": rare.source,
            "unbroken": self.unbroken,
            "looked_at": len(rare.positions),
            "status": {each.value: rare.status.count(each) for each in Status},
            "particles": rare.particles,
            "replicates": rare.replicates,
            "calls": int(rare.calls.sum()),
            "largest": float(rare.p.max()),
            "median": float(np.median(rare.p)),
            "added": self.combined.added(tally.clean_correct),
        }


def look_for_rare_failures(
    session: Session,
    sources: Sequence[PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
) -> tuple[dict[str, Found], list[Result]]:
    """Splitting where plain draws saw no failure, for every source that can be moved; and its rows."""
    found: dict[str, Found] = {}
    rows: list[Result] = []
    calls, confidence = session.settings.rare_calls, session.settings.confidence
    if calls is None:
        return found, rows
    moved = [each for each in sources if each.name in tallies and movable(each)]
    splitter = Splitter(session, calls, len(moved))
    for source in moved:
        tally = tallies[source.name]
        try:
            with session.timed(f"rare {source.name}"):
                seen = splitter.look(source, tally)
        except Exception as error:  # the others' results are kept
            logger.debug("splitting of %s failed", source.name, exc_info=True)
            rows.append(session.failed(source.name, source.metric, error))
            continue
        if seen is not None:
            found[source.name] = seen
            rows += rare_rows(source, tally, seen.rare, seen.combined, confidence)
    return found, rows


@dataclass
class Splitter:
    """The calls that are left, and for how many sources."""

    session: Session
    calls: int
    sources: int

    def look(self, source: PerturbationSource, tally: Tally[Evaluate]) -> Found | None:
        """Look at inputs that are right without noise and in all draws; None where there are none."""
        moved = movable(source)
        assert moved is not None
        share, self.sources = self.calls // max(1, self.sources), self.sources - 1
        unbroken = np.flatnonzero(tally.clean_correct & tally.unbroken)
        places = self._chosen(unbroken, share // RARE_CALLS_PER_INPUT)
        if not len(places):
            return None
        parts = self._parts(source.name, moved, places, share)
        rare = replace(joined(parts), source=source.name)
        self.calls -= _spent(rare)
        return Found(rare, len(unbroken), combined(tally, rare))

    def _chosen(self, unbroken: IntArray, most: int) -> IntArray:
        order = stratified_order(
            self.session.data.evaluate.labels[unbroken],
            self.session.data.evaluate.indices[unbroken],
            self.session.settings.seed,
        )
        chosen: IntArray = np.sort(unbroken[order[:most]])
        return chosen

    def _parts(
        self, name: str, moved: PerturbationSource, places: IntArray, total: int
    ) -> list[Rare]:
        """The results of all groups, which several ranks divide."""
        groups = [places[start : start + GROUP] for start in range(0, len(places), GROUP)]
        each, own = total // len(places), list[Rare]()
        with together():
            for number in span(len(groups)):
                before = sum(map(_spent, own))
                own.append(self._group(name, moved, groups[number], each, before, total))
            return [part for parts in gathered(own) for part in parts]

    def _group(
        self,
        name: str,
        moved: PerturbationSource,
        places: IntArray,
        each: int,
        before: int,
        total: int,
    ) -> Rare:
        """The results of some inputs, from the file where they are kept already."""
        kept = self._file(name, places)
        known = None if kept is None else read_rare(kept, self._identity)
        if known is not None:
            return known

        def tell(state: Progress) -> None:
            if self.session.progress is not None and world().is_first:
                here = f"rare {name}"
                self.session.progress(Progress(here, before + state.done, total, state.right))

        found = rare_failures(
            moved,
            self.session.classifier,
            self.session.data.evaluate,
            places,
            calls=each * len(places),
            seed=self.session.settings.seed,
            confidence=self.session.settings.confidence,
            floor=RARE_FLOOR,
            quantise=self.session.settings.quantise,
            progress=tell,
        )
        if kept is not None:
            write_rare(kept, found, self._identity)
        return found

    @property
    def _identity(self) -> str:
        return self.session.folder.identity if self.session.folder else ""

    def _file(self, name: str, places: IntArray) -> Path | None:
        if self.session.folder is None:
            return None
        which = hashlib.sha256(f"{name} {places.tolist()}".encode()).hexdigest()[:16]
        return self.session.folder.path / "rare" / f"{which}.safetensors"


def _spent(rare: Rare) -> int:
    return int(rare.calls.sum())
