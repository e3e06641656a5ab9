"""Several runs side by side: values, paired differences, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from nppr.compare.differences import differences_of, ranks_of
from nppr.compare.entries import Gathered, gather, same_data
from nppr.compare.names import differing, names_of
from nppr.compare.readings import Reading, gathered, readings_of, won_by_noise
from nppr.compare.schema import SCHEMA_VERSION, Compared, Comparison, Entry, RunFacts
from nppr.compare.standings import standing_of
from nppr.errors import RunFolderError
from nppr.report.folder import RunFiles, read_run
from nppr.report.schema import WITH_REFERENCES, Report
from nppr.report.shares import SHARES, Key, headlines
from nppr.statistics.intervals import RESAMPLES, check_confidence
from nppr.types import Metric

__all__ = ["compare"]


def compare(
    runs: Sequence[str | Path | RunFiles],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    allow_different_data: bool = False,
) -> Comparison:
    """Compare runs by their folders; runs that differ in the seed alone become one entry.

    `seed` is that of the resampling. On different data nothing is paired, and only where
    `allow_different_data` says so.
    """
    check_confidence(confidence)
    files = _read(runs)
    entries = gather(files)
    paired = same_data(entries, allow_different=allow_different_data)
    readings = [_readings(entry) for entry in entries]
    keys = _keys(entries)
    results = tuple(
        _compared(key, entries, readings, confidence, seed, paired=paired) for key in keys
    )
    return Comparison(
        schema_version=SCHEMA_VERSION,
        nppr_version=version("nppr"),
        confidence=confidence,
        seed=seed,
        resamples=RESAMPLES,
        paired=paired,
        entries=_entries(entries),
        results=results,
        notes=tuple(_notes(entries, results, paired=paired)),
    )


def _read(runs: Sequence[str | Path | RunFiles]) -> list[RunFiles]:
    if isinstance(runs, str | Path) or len(runs) < 2:
        given = 1 if isinstance(runs, str | Path) else len(runs)
        raise RunFolderError(
            f"`runs` must be two or more run folders, got {given}."
            " Example: nppr compare runs/a runs/b"
        )
    paths = [Path(run.path if isinstance(run, RunFiles) else run).resolve() for run in runs]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise RunFolderError(f"`runs` must be different folders, got {str(path)!r} twice.")
    return [run if isinstance(run, RunFiles) else read_run(run) for run in runs]


def _readings(entry: Gathered) -> dict[Key, Reading]:
    """The numbers of an entry that all its runs have."""
    found = [readings_of(run) for run in entry.runs]
    shared = [key for key in found[0] if all(key in each for each in found)]
    return {key: gathered([each[key] for each in found]) for key in shared}


def _keys(entries: Sequence[Gathered]) -> list[Key]:
    """What at least two entries have (or the only one), by metric and then lowest first.

    NPPR is in the order of the floors, the row together with the reference noises first: the first
    one is that of the widest admissible set, which the page of a run quotes too. A family with the
    reference noises is left out where no noise beat the family anywhere.
    """
    reports = [run.report for entry in entries for run in entry.runs]
    won = {source + WITH_REFERENCES for report in reports for source in won_by_noise(report)}
    lowest: dict[Key, float] = {}
    shared: dict[Key, int] = {}
    for entry in entries:
        for key, row in headlines(entry.first.report).items():
            if not key[1].endswith(WITH_REFERENCES) or key[1] in won:
                value = 2.0 if row.value is None else row.value
                lowest[key] = min(lowest.get(key, 2.0), value)
                shared[key] = shared.get(key, 0) + (row.value is not None)
    if max(shared.values(), default=0) < min(2, len(entries)):
        raise RunFolderError(
            "`runs` must have a metric in common, these have none."
            " Assess them with the same --sources."
        )
    floors = _floors(reports)
    return sorted(
        lowest,
        key=lambda key: (SHARES.index(key[0]), *_width(key, floors), lowest[key], key[1]),
    )


def _floors(reports: Sequence[Report]) -> dict[str, float]:
    """The floor of every learned source; a repeated fit comes behind all others."""
    return {
        str(made["source"]): 2.0
        if ":fit-seed=" in made["source"]
        else float(made["family"]["floor"])
        for report in reports
        for made in report.distributions
    }


def _width(key: Key, floors: dict[str, float]) -> tuple[float, bool]:
    """The place of a source among learned ones; all other metrics have one place."""
    metric, source = key
    if metric is not Metric.NPPR:
        return 0.0, False
    family = source.removesuffix(WITH_REFERENCES)
    return floors.get(family, 2.0), family == source


def _compared(
    key: Key,
    entries: Sequence[Gathered],
    readings: Sequence[dict[Key, Reading]],
    confidence: float,
    seed: int,
    *,
    paired: bool,
) -> Compared:
    known = {at: each[key] for at, each in enumerate(readings) if key in each}
    differences = differences_of(known, confidence, seed, paired=paired)
    ranks = ranks_of(known, differences)
    standings = [
        standing_of(at, entry, key, known.get(at), confidence) for at, entry in enumerate(entries)
    ]
    return Compared(
        metric=key[0],
        source=key[1],
        standings=tuple(
            standing.model_copy(update={"rank": ranks.get(standing.entry)})
            for standing in standings
        ),
        differences=differences,
    )


def _entries(entries: Sequence[Gathered]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            name=name,
            classifier=str(entry.first.report.classifier["name"]),
            data=str(entry.first.report.data["name"]),
            budget=f"{entry.first.report.budget['norm']} {entry.first.report.budget['text']}",
            runs=tuple(
                RunFacts(
                    folder=str(run.path), seed=run.report.seed, grade=run.report.grade["letter"]
                )
                for run in entry.runs
            ),
            differs=facts,
        )
        for entry, name, facts in zip(entries, names_of(entries), differing(entries), strict=True)
    )


def _notes(entries: Sequence[Gathered], results: Sequence[Compared], *, paired: bool) -> list[str]:
    """What a reader must know before believing the ranks."""
    notes = []
    if not paired:
        notes.append(
            "The runs are on different data: nothing is paired, and a difference may be one of the"
            " data as well as of the classifiers."
        )
    if len({entry.first.report.budget["text"] + entry.first.report.budget["norm"]
            for entry in entries}) > 1:  # fmt: skip
        notes.append("The budgets differ: a smaller budget is easier to be robust in.")
    if any(result.metric in (Metric.AR, Metric.NPPR) for result in results):
        notes.append(
            "AR and NPPR are upper bounds: each is what a search found, and a longer search can lower"
            " it. Compare runs whose searches had the same settings."
        )
    notes += [
        f"{run.path} holds no per_input.csv: its differences are not known."
        for entry in entries
        for run in entry.runs
        if not run.per_input
    ]
    common = [result for result in results if len(result.differences) > 0]
    if len(entries) > 1 and {result.metric for result in common} == {Metric.ACCURACY}:
        notes.append("The runs share no source: only the clean accuracy can be compared.")
    return notes
