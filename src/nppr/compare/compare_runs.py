"""Several runs side by side: values, paired differences with intervals, ranks.

Runs that differ in the seed alone are one entry. A number is compared by its mean over inputs, paired
where both runs are on the same inputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from nppr.compare.comparison import (
    SCHEMA_VERSION,
    Compared,
    Comparison,
    Difference,
    Entry,
    RunEntry,
    Standing,
)
from nppr.errors import RunFolderError
from nppr.report.findings import SHARES, Key, headlines, lines_of, shares_of
from nppr.report.model import MERGED, ReportRecord, Result
from nppr.report.run_files import RunFiles, read_run
from nppr.search.search_settings import SearchSettings
from nppr.statistics.estimates import APPROXIMATE, FEWEST_INPUTS, MOST_CONFIDENT
from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    check_confidence,
    clopper_pearson,
    half_width,
)
from nppr.statistics.paired import (
    Share,
    guaranteed_difference,
    joint_difference,
    paired_difference,
    unpaired_difference,
)
from nppr.tally import IntArray, Metric

NEAR = (0.1, 0.9)
"""Means between which approximate intervals were tested."""

NOT_MEASURED = "not measured in this run"
LONGEST_NAME = 48
"""Letters of a name; a longer one gives way to the name of the folder."""

HASH = "hash of the weights"
UNNAMED = ("classifier", HASH, "nppr version", "device")
"""Settings that mean nothing in a name."""

PLAIN = ("weights", "budget", "data")
"""Settings that are understood without their name."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Runs that differ in the seed alone, in the order of their seeds; the first represents all."""

    runs: tuple[RunFiles, ...]

    @property
    def report(self) -> ReportRecord:
        return self.runs[0].report

    def same_inputs(self, other: _Group) -> bool:
        """Whether two entries were measured on the same inputs, as far as is known."""
        known = self._indices() and other._indices()
        same = self._hashes() == other._hashes()
        return same and (not known or self._indices() == other._indices())

    def _hashes(self) -> frozenset[str]:
        return frozenset(run.report.data.fingerprint for run in self.runs)

    def _indices(self) -> frozenset[int]:
        lines = [run.per_input for run in self.runs if run.per_input]
        return frozenset(index for each in lines for index in each["index"].tolist())


@dataclass(frozen=True, eq=False)
class _Reading:
    """A mean over inputs; `indices` `(N,)` are those of the data set, ascending."""

    indices: IntArray
    share: Share


def compare(
    runs: Sequence[str | Path | RunFiles],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    allow_different_data: bool = False,
) -> Comparison:
    """Compare runs by their folders; runs that differ in the seed alone become one entry.

    `seed` is that of the resampling. On different data nothing is paired, and only where
    `allow_different_data` permits it.
    """
    check_confidence(confidence)
    groups = _grouped(_read(runs))
    paired = _same_data(groups, allow_different=allow_different_data)
    readings = [_readings_of(group) for group in groups]
    searches = _differing_searches(groups)
    results = tuple(
        _compared(key, groups, readings, confidence, seed,
                  paired=paired, comparable=not (searches and _depends_on_search(key)))
        for key in _keys(groups)
    )  # fmt: skip
    return Comparison(
        schema_version=SCHEMA_VERSION,
        nppr_version=version("nppr"),
        confidence=confidence,
        seed=seed,
        resamples=RESAMPLES,
        paired=paired,
        entries=_entries(groups),
        results=results,
        notes=tuple(_notes(groups, results, searches, paired=paired)),
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


def _grouped(runs: Sequence[RunFiles]) -> list[_Group]:
    """Entries in the order of their first runs; a run whose seed is there already stays alone."""
    same: dict[str, list[RunFiles]] = {}
    for run in runs:
        same.setdefault(_identity(run.report), []).append(run)
    groups: dict[int, _Group] = {}
    for found in same.values():
        seeds = {run.report.seed for run in found}
        for part in [found] if len(seeds) == len(found) else [[run] for run in found]:
            ordered = sorted(part, key=lambda run: run.report.seed)
            groups[min(runs.index(run) for run in part)] = _Group(tuple(ordered))
    return [group for _, group in sorted(groups.items())]


def _identity(report: ReportRecord) -> str:
    """Everything that determines the numbers, but the seed.

    The seed chooses the inputs where only some are evaluated; else the inputs must be the same.
    """
    chosen = {"fingerprint"} if report.settings.inputs is not None else set[str]()
    parts = (
        report.classifier.model_dump(mode="json"),
        report.data.model_dump(mode="json", exclude=chosen),
        report.budget.model_dump(mode="json"),
        report.settings.model_dump(mode="json"),
    )
    return json.dumps(parts, sort_keys=True)


def _same_data(groups: Sequence[_Group], *, allow_different: bool) -> bool:
    """Whether all entries are on the same inputs; else an error, unless that is allowed."""
    first = groups[0]
    for group in groups[1:]:
        if group.same_inputs(first):
            continue
        if allow_different:
            return False
        raise RunFolderError(
            f"`runs` must be on the same inputs, {str(first.runs[0].path)!r} is on"
            f" {_described_inputs(first)} and {str(group.runs[0].path)!r} on"
            f" {_described_inputs(group)}. Assess both on the same data, with the same --inputs and"
            " seeds, or add --allow-different-data to compare without pairing."
        )
    return True


def _described_inputs(group: _Group) -> str:
    data = group.report.data
    several = f" for {len(group.runs)} seeds" if len(group.runs) > 1 else ""
    return (
        f"{data.inputs.evaluate:,} inputs of {data.name!r} (hash {data.fingerprint[:8]}){several}"
    )


def _differing_searches(groups: Sequence[_Group]) -> dict[str, list[str]]:
    """Settings in which searches for the worst noise differ, with the value of every entry.

    An upper bound found by a weaker search looks safer, so such entries are not compared on NPPR.
    """
    found = [_search_settings(group.report) for group in groups]
    learned = [each for each in found if each]
    names = dict.fromkeys(name for each in learned for name in each)
    return {
        name: [each.get(name, "-") if each else "-" for each in found]
        for name in names
        if len({each.get(name, "-") for each in learned}) > 1
    }


def _depends_on_search(key: Key) -> bool:
    """NPPR, and AR over everything in the budget, into which draws of learned noise are merged."""
    return key[0] is Metric.NPPR or key == (Metric.AR, MERGED)


def _search_settings(report: ReportRecord) -> dict[str, str]:
    """How the learned noise of a run was searched for; empty without learned noise."""
    if not report.distributions:
        return {}
    search = report.distributions[0].search
    settings = TypeAdapter(SearchSettings).dump_python(search.settings, mode="json")
    conditions = search.conditions.model_dump(exclude={"fingerprint"})
    own = search.conditions.fingerprint in (None, report.classifier.fingerprint)
    features = report.classifier.features
    return {
        **_flat(settings),
        **_flat(conditions),
        "budget of the search": str(report.distributions[0].budget),
        "features": "-" if features is None else features.layer,
        "fitted on this classifier": "yes" if own else "no",
    }


def _readings_of(group: _Group) -> dict[Key, _Reading]:
    """The numbers of an entry that all its runs have, as means over the inputs of all of them."""
    found = []
    for run in group.runs:
        lines = lines_of(run.per_input, run.path)
        shares = shares_of(run.report, lines, run.path)
        indices = next(iter(lines.values()))["index"] if lines else np.zeros(0, np.int64)
        found.append({key: _Reading(indices, share) for key, share in shares.items()})
    shared = [key for key in found[0] if all(key in each for each in found)]
    return {key: _joined([each[key] for each in found]) for key in shared}


def _joined(readings: Sequence[_Reading]) -> _Reading:
    """Several runs as one: an input counts as often as it was measured, its rates are added."""
    if len(readings) == 1:
        return readings[0]
    indices = np.unique(np.concatenate([reading.indices for reading in readings]))
    above, below = np.zeros(len(indices)), np.zeros(len(indices))
    for reading in readings:
        at = np.searchsorted(indices, reading.indices)
        above[at] += reading.share.above
        below[at] += reading.share.below
    return _Reading(indices, Share(above, below))


def _keys(groups: Sequence[_Group]) -> list[Key]:
    """The rows of all entries, by metric and then lowest first.

    NPPR is in the order of the floors, with the reference noises first: the first one is that of the
    widest admissible set, which the page of a run quotes too. Learned noise with the reference noises
    is left out where no reference noise was worse anywhere.
    """
    lowest: dict[Key, float] = {}
    rows: dict[Key, Result] = {}
    shared: Counter[Key] = Counter()
    won = {
        (made.family.floor, made.fit_seed)
        for group in groups
        for made in group.report.distributions
        if made.winner
    }
    for group in groups:
        for key, row in headlines(group.report).items():
            if row.with_references and (row.floor, row.fit_seed) not in won:
                continue
            rows.setdefault(key, row)
            lowest[key] = min(lowest.get(key, 2.0), 2.0 if row.value is None else row.value)
            shared[key] += row.value is not None
    if max(shared.values(), default=0) < min(2, len(groups)):
        raise RunFolderError(
            "`runs` must have a metric in common, these have none."
            " Assess them with the same --sources."
        )

    def place(key: Key) -> tuple[object, ...]:
        row = rows[key]
        floor = 2.0 if row.is_repeated_fit else row.floor or 0.0
        learned = (floor, not row.with_references) if row.metric is Metric.NPPR else (0.0, False)
        return (SHARES.index(key[0]), *learned, lowest[key], key[1])

    return sorted(lowest, key=place)


def _compared(
    key: Key,
    groups: Sequence[_Group],
    readings: Sequence[dict[Key, _Reading]],
    confidence: float,
    seed: int,
    *,
    paired: bool,
    comparable: bool,
) -> Compared:
    known = {at: each[key] for at, each in enumerate(readings) if key in each}
    pairs = list(combinations(sorted(known), 2)) if comparable else []
    differences = tuple(
        _difference(pair, known, confidence, seed, paired=paired, pairs=len(pairs))
        for pair in pairs
    )
    ranks = _ranks(known, differences) if comparable else {}
    standings = (
        _standing(at, group, key, known.get(at), confidence) for at, group in enumerate(groups)
    )
    return Compared(
        metric=key[0],
        source=key[1],
        comparable=comparable,
        standings=tuple(
            each.model_copy(update={"rank": ranks.get(each.entry)}) for each in standings
        ),
        differences=differences,
    )


def _ranks(
    entries: Mapping[int, _Reading], differences: Sequence[Difference]
) -> dict[int, int | None]:
    """1 + the number of entries that are separated and better; None where nothing can be ranked."""
    if len(entries) < 2:
        return dict.fromkeys(entries)
    ranks: dict[int, int | None] = {}
    for entry in entries:
        behind = [
            each.first if each.value < 0 else each.second
            for each in differences
            if each.separated and entry in (each.first, each.second)
        ]
        ranks[entry] = 1 + behind.count(entry)
    return ranks


def _outside_regime(share: Share) -> bool:
    """Whether an approximate interval of this mean is outside its tested regime."""
    few = int(np.count_nonzero(share.below)) < FEWEST_INPUTS
    return few or not NEAR[0] <= share.value <= NEAR[1]


def _difference(
    pair: tuple[int, int],
    readings: Mapping[int, _Reading],
    confidence: float,
    seed: int,
    *,
    paired: bool,
    pairs: int,
) -> Difference:
    a, b = (readings[each].share for each in pair)
    found, method = _difference_interval(a, b, confidence, seed, paired=paired)
    sure = guaranteed_difference(a, b, confidence, seed, paired=paired)
    apart = unpaired_difference(a, b, confidence)
    doubtful = _outside_regime(a) or _outside_regime(b)
    together = 1 - (1 - confidence) / pairs
    return Difference(
        first=pair[0],
        second=pair[1],
        value=a.value - b.value,
        low=found.low,
        high=found.high,
        confidence=confidence,
        method=method,
        paired=paired,
        guaranteed_low=sure.low if sure else None,
        guaranteed_high=sure.high if sure else None,
        unpaired_low=apart.low,
        unpaired_high=apart.high,
        separated=_separated(a, b, together, seed, paired=paired, doubtful=doubtful),
        flags=(APPROXIMATE,) if doubtful or confidence > MOST_CONFIDENT else (),
    )


def _difference_interval(
    a: Share, b: Share, confidence: float, seed: int, *, paired: bool
) -> tuple[Interval, str]:
    """Paired where the same inputs count for both, else a joint bootstrap, else unpaired."""
    if not paired:
        return unpaired_difference(a, b, confidence), "unpaired-normal"
    if a.even and b.even and np.array_equal(a.below > 0, b.below > 0):
        return paired_difference(a.counted, b.counted, confidence, seed).normal, "paired-normal"
    return joint_difference(a, b, confidence, seed).bootstrap, "joint-bootstrap"


def _separated(
    a: Share, b: Share, confidence: float, seed: int, *, paired: bool, doubtful: bool
) -> bool:
    """Whether 0 lies outside the interval: the guaranteed one where the approximate is doubtful.

    Percentiles of a bootstrap do not reach far into the tails, so that of the influences is used.
    """
    if doubtful:
        found = guaranteed_difference(a, b, confidence, seed, paired=paired)
    elif paired:
        found = joint_difference(a, b, confidence, seed).normal
    else:
        found = unpaired_difference(a, b, confidence)
    return found is not None and not found.low <= 0 <= found.high


def _standing(
    position: int, group: _Group, key: Key, reading: _Reading | None, confidence: float
) -> Standing:
    """The mean over the runs of an entry; that of one run at its own confidence as it is reported."""
    rows = [headlines(run.report).get(key) for run in group.runs]
    known = [row for row in rows if row is not None and row.value is not None]
    if len(known) < len(rows):
        return Standing(
            entry=position, confidence=confidence, inputs=0, draws=0, error=_absence(group, rows)
        )
    first, values = known[0], [float(row.value or 0) for row in known]
    normalised = [
        row.value
        for run in group.runs
        if (row := run.report.headline(first.name, Metric.NORMALISED_ACCURACY)) is not None
        and row.value is not None
    ]
    normalised = normalised if len(normalised) == len(rows) else []
    interval, level, method, flags = _interval(known, reading, confidence)
    return Standing(
        entry=position,
        value=float(np.mean(values)),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confidence=level,
        method=method,
        direction=first.direction,
        std=_std(values),
        normalised=float(np.mean(normalised)) if normalised else None,
        normalised_std=_std(normalised),
        inputs=first.inputs if reading is None else int(np.count_nonzero(reading.share.below)),
        draws=first.draws,
        flags=flags,
    )


def _interval(
    rows: Sequence[Result], reading: _Reading | None, confidence: float
) -> tuple[Interval | None, float, str | None, tuple[str, ...]]:
    """As one run reports it; else exact for a share of inputs, else the value and t standard errors."""
    first = rows[0]
    if len(rows) == 1 and (first.confidence == confidence or reading is None):
        assert first.low is not None
        assert first.high is not None
        return Interval(first.low, first.high), first.confidence, first.method, first.flags
    if reading is None:
        return None, confidence, None, ()
    share = reading.share
    if share.even and set(np.unique(share.counted)) <= {0.0, 1.0}:
        successes = np.array(round(float(share.counted.sum())))
        low, high = clopper_pearson(successes, len(share.counted), confidence)
        return Interval(float(low), float(high)), confidence, "clopper-pearson", ()
    counted = Share(share.above[share.below > 0], share.below[share.below > 0])
    half = half_width(counted.influence, confidence)
    interval = Interval(max(0.0, share.value - half), min(1.0, share.value + half))
    flagged = _outside_regime(share) or confidence > MOST_CONFIDENT
    return interval, confidence, "normal", (APPROXIMATE,) if flagged else ()


def _absence(group: _Group, rows: Sequence[Result | None]) -> str:
    """Why an entry has no number."""
    reasons = []
    for row, run in zip(rows, group.runs, strict=True):
        if row is None or row.value is None:
            seed = f"seed {run.report.seed}: " if len(rows) > 1 else ""
            reasons.append(seed + ((row.error if row else None) or NOT_MEASURED))
    return "; ".join(dict.fromkeys(reasons))


def _std(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds, with n - 1 below; None for one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _entries(groups: Sequence[_Group]) -> tuple[Entry, ...]:
    facts = _differing(groups)
    return tuple(
        Entry(
            name=name,
            classifier=group.report.classifier.name,
            data=group.report.data.name,
            budget=str(group.report.budget),
            runs=tuple(
                RunEntry(folder=str(run.path), seed=run.report.seed, grade=run.report.grade.letter)
                for run in group.runs
            ),
            differs=differs,
        )
        for group, name, differs in zip(groups, _names(groups, facts), facts, strict=True)
    )


def _differing(groups: Sequence[_Group]) -> list[dict[str, str]]:
    """For each entry the settings in which not all entries agree, as text; `-` where there is none.

    A search that only some have is one line.
    """
    searched = all(group.report.settings.search for group in groups)
    facts = [_settings_of(group, searched=searched) for group in groups]
    names = list(dict.fromkeys(name for each in facts for name in each))
    shown = [name for name in names if len({each.get(name, "-") for each in facts}) > 1]
    return [{name: each.get(name, "-") for name in shown} for each in facts]


def _settings_of(group: _Group, *, searched: bool) -> dict[str, str]:
    report = group.report
    settings = report.settings.model_dump(mode="json", exclude={"inputs", "sources"})
    if not searched:
        settings["search"] = "yes" if report.settings.search else None
    sources = {each.name: each.options for each in report.settings.sources}
    return {
        "classifier": report.classifier.name,
        "weights": report.classifier.weights or "default weights",
        HASH: report.classifier.fingerprint[:8],
        "data": report.data.name,
        "inputs": f"{report.data.inputs.evaluate:,}",
        "budget": str(report.budget),
        "sources": ", ".join(sources) or "-",
        **_flat(settings),
        **_flat({"options": sources}),
        "seed": ", ".join(str(run.report.seed) for run in group.runs),
        "nppr version": report.nppr_version,
        "device": report.environment.device,
    }


def _names(groups: Sequence[_Group], facts: Sequence[dict[str, str]]) -> list[str]:
    """The classifier, then as much as tells it from others of that name, else the folder."""
    plain = [group.report.classifier.name for group in groups]
    names = list(plain)
    for key in (each for each in facts[0] if each not in UNNAMED):
        texts: dict[str, set[str]] = {}
        for name, each in zip(names, facts, strict=True):
            texts.setdefault(name, set()).add(each[key])
        names = [
            f"{name}, {'' if key in PLAIN else key + ' '}{each[key]}"
            if len(texts[name]) > 1
            else name
            for name, each in zip(names, facts, strict=True)
        ]
    for by_path in (False, True):
        repeated = Counter(names)
        folders = [group.runs[0].path for group in groups]
        names = [
            f"{start} ({folder if by_path else folder.resolve().name})"
            if repeated[name] > 1 or len(name) > LONGEST_NAME
            else name
            for start, name, folder in zip(plain, names, folders, strict=True)
        ]
    return names


def _flat(settings: Mapping[str, object], before: str = "") -> dict[str, str]:
    """Nested settings as one level, `search.family.floor` as `search family floor`."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        called = f"{before}{name.replace('_', ' ')}"
        found |= _flat(value, called + " ") if isinstance(value, dict) else {called: _text(value)}
    return found


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_text(each) for each in value) or "-"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _notes(
    groups: Sequence[_Group],
    results: Sequence[Compared],
    searches: Mapping[str, Sequence[str]],
    *,
    paired: bool,
) -> list[str]:
    """What a reader must know before trusting the ranks."""
    notes = []
    if not paired:
        notes.append(
            "The runs are on different data: nothing is paired, and a difference may come from the data"
            " as well as from the classifiers."
        )
    if len({str(group.report.budget) for group in groups}) > 1:
        notes.append("The budgets differ: robustness is easier in a smaller budget.")
    if searches:
        named = "; ".join(f"{name}: {', '.join(values)}" for name, values in searches.items())
        notes.append(
            "NPPR is not compared: it is an upper bound, which a weaker search makes look safer."
            f" The searches had different settings ({named}). Repeat them with the same settings."
        )
    elif any(result.metric in (Metric.AR, Metric.NPPR) for result in results):
        notes.append(
            "AR and NPPR are upper bounds: each is what a search found, and a longer search can lower"
            " it. Compare runs whose searches had the same settings."
        )
    notes += [
        f"{run.path} holds no per_input.csv: its differences are not known."
        for group in groups
        for run in group.runs
        if not run.per_input
    ]
    common = {result.metric for result in results if result.differences}
    if len(groups) > 1 and common == {Metric.ACCURACY} and not searches:
        notes.append("The runs share no source: only the clean accuracy can be compared.")
    return notes
