"""Which runs are compared with which: those that differ in the seed alone are one entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from nppr.errors import RunFolderError
from nppr.report.folder import RunFiles

__all__ = ["Gathered", "gather", "same_data"]

OF_THE_INPUTS = ("fingerprint",)


@dataclass(frozen=True, eq=False)
class Gathered:
    """Runs that differ in the seed alone, in the order of their seeds."""

    runs: tuple[RunFiles, ...]

    @property
    def first(self) -> RunFiles:
        """The run that stands for the settings of all."""
        return self.runs[0]

    @property
    def hashes(self) -> frozenset[str]:
        """Hashes of the images and labels of all runs."""
        return frozenset(str(run.report.data["fingerprint"]) for run in self.runs)

    @property
    def indices(self) -> frozenset[int]:
        """The inputs of all runs by their places in the data set; empty where they are not known."""
        lines = [run.per_input for run in self.runs if run.per_input]
        return frozenset(index for each in lines for index in each["index"].tolist())

    def same_inputs(self, other: Gathered) -> bool:
        """Whether two entries were measured on the same inputs, as far as is known."""
        known = self.indices and other.indices
        return self.hashes == other.hashes and (not known or self.indices == other.indices)


def gather(runs: Sequence[RunFiles]) -> list[Gathered]:
    """Entries in the order of their first runs; a run whose seed is there already stays alone."""
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        groups.setdefault(_settings(run), []).append(run)
    entries: dict[int, Gathered] = {}
    for group in groups.values():
        seeds = {run.report.seed for run in group}
        parts = [group] if len(seeds) == len(group) else [[run] for run in group]
        for part in parts:
            ordered = sorted(part, key=lambda run: run.report.seed)
            entries[min(runs.index(run) for run in part)] = Gathered(tuple(ordered))
    return [entry for _, entry in sorted(entries.items())]


def same_data(entries: Sequence[Gathered], *, allow_different: bool) -> bool:
    """Whether all entries are of the same inputs; else an error, unless that is allowed."""
    first = entries[0]
    for entry in entries[1:]:
        if entry.same_inputs(first):
            continue
        if allow_different:
            return False
        raise RunFolderError(
            f"`runs` must be on the same inputs, {str(first.first.path)!r} is on {_words(first)} and"
            f" {str(entry.first.path)!r} on {_words(entry)}. Assess both on the same data, with the"
            " same --inputs and seeds, or add --allow-different-data to compare without pairing."
        )
    return True


def _settings(run: RunFiles) -> str:
    """Everything that determines the numbers, but the seed.

    The seed chooses the inputs where only some are evaluated; else the inputs must be the same.
    """
    report = run.report
    data = dict(report.data)
    if report.settings.get("inputs") is not None:
        data = {name: value for name, value in data.items() if name not in OF_THE_INPUTS}
    return json.dumps([report.classifier, data, report.budget, report.settings], sort_keys=True)


def _words(entry: Gathered) -> str:
    data = entry.first.report.data
    several = f" for {len(entry.runs)} seeds" if len(entry.runs) > 1 else ""
    number = data["inputs"]["evaluate"]
    return f"{number:,} inputs of {data['name']!r} (hash {data['fingerprint'][:8]}){several}"
