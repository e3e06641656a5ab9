"""A run that measures more until its intervals are narrow enough: rounds, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from nppr.checkpoint import Store
from nppr.data import Part
from nppr.run.precision import (
    FIRST,
    GrowingStore,
    MemoryStore,
    Need,
    Round,
    judge,
    whole_blocks,
)
from nppr.run.settings import Settings
from nppr.run_folder import RunFolder
from nppr.types import Evaluate, Tally

__all__ = ["Growth"]

ROUNDS = "rounds"


class Growth:
    """The rounds of a run: `part` and `at.draws` are what to measure now.

    Blocks of a round are those of the next one too. With a folder, rounds are noted there before they
    are measured, so that a resumed run takes the same way.
    """

    def __init__(self, whole: Part[Evaluate], settings: Settings, folder: RunFolder | None) -> None:
        assert settings.precision is not None
        self.whole, self.folder = whole, folder
        self.precision, self.confidence = settings.precision, settings.confidence
        self.seed = settings.seed
        self._memory: dict[str, MemoryStore] = {}
        self.need: Need | None = None
        noted = folder.noted(ROUNDS) if folder else None
        first = Round(min(len(whole), FIRST.inputs), whole_blocks(settings.draws))
        self.rounds = [Round(*each) for each in noted] if noted else [first]
        self._note()

    @property
    def at(self) -> Round:
        """The round under way."""
        return self.rounds[-1]

    @property
    def part(self) -> Part[Evaluate]:
        """Its inputs."""
        return self.whole.limit(self.at.inputs, self.seed, "inputs")

    @property
    def reached(self) -> bool:
        """Whether all intervals are narrow enough."""
        return self.need is not None and self.need.reached

    def store(self, name: str) -> Store:
        """Where a source keeps its blocks: among those of all inputs there are."""
        memory = self._memory.setdefault(name, MemoryStore())
        whole = self.folder.store(name) if self.folder else memory
        place = {index: row for row, index in enumerate(self.whole.indices.tolist())}
        rows = np.array([place[index] for index in self.part.indices.tolist()])
        return GrowingStore(whole, rows, len(self.whole))

    def goes_on(self, tallies: Mapping[str, Tally[Evaluate]]) -> bool:
        """Look at the tallies of this round; whether there is another one."""
        if not tallies or not all(len(tally.headline_rates) for tally in tallies.values()):
            return False
        whole = len(self.whole)
        self.need = judge(tallies, self.at, whole, self.precision, self.confidence)
        if self.need.following is None:
            return False
        self.rounds.append(self.need.following)
        self._note()
        return True

    def restated(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """What the report says of the data, for the inputs that were measured."""
        inputs = {**data["inputs"], Evaluate.name: self.at.inputs}
        return {**data, "inputs": inputs, "fingerprint": self.part.fingerprint()}

    def described(self) -> dict[str, Any]:
        """The entry in the report."""
        need = self.need
        return {
            "asked": self.precision,
            "reached": self.reached,
            "rounds": [[each.inputs, each.draws] for each in self.rounds],
            "available_inputs": len(self.whole),
            "needed_inputs": need.inputs if need else None,
            "widths": {name: asdict(width) for name, width in need.widths.items()} if need else {},
        }

    def words(self) -> str:
        """Why it was not reached, and what it would cost."""
        if self.need is None:
            return "no source could be measured on inputs that are right without noise"
        name, widest = max(self.need.widths.items(), key=lambda item: item[1].half_width)
        draws = self.at.draws
        return (
            f"{name} is known to +-{100 * widest.half_width:.2f} points after {self.at.inputs:,}"
            f" inputs of {draws} draws, and no more inputs are at hand; +-{100 * self.precision:g}"
            f" points would take about {self.need.inputs:,} inputs,"
            f" {self.need.inputs * (draws + 1):,} calls for each source"
        )

    def _note(self) -> None:
        if self.folder:
            self.folder.note(ROUNDS, [[each.inputs, each.draws] for each in self.rounds])
