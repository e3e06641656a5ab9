"""Several runs side by side: values, paired differences with verdicts, ranks.

Runs that differ in the seed alone are one entry. Numbers are means over inputs. Verdicts come from
exact or guaranteed tests on the inputs that count for both runs: for accuracy all inputs, else those
that both classify correctly without noise. Approximate intervals beside them decide nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppr.compare.compare_answer import answer_of, remarks_of
from nppr.compare.compare_settings import (
    Group,
    differing_searches,
    differing_settings,
    letter,
    names_of,
)
from nppr.compare.comparison import (
    BETTING,
    SCHEMA_VERSION,
    SIGN_TEST,
    Compared,
    Comparison,
    Difference,
    Entry,
    RunEntry,
    Standing,
)
from nppr.core.tally import Metric
from nppr.errors import RunFolderError
from nppr.report.findings import SHARES, Key, by_width, headlines, lines_of, shares_of
from nppr.report.model import ReportRecord
from nppr.report.number import Number
from nppr.report.run_files import RunFiles, read_run
from nppr.statistics.betting import betting
from nppr.statistics.intervals import Interval, check_confidence, clopper_pearson
from nppr.statistics.paired import (
    Share,
    common_numbers,
    holm_pvalues,
    paired_difference,
    paired_pvalues,
)

Pair = tuple[Share, Share]
"""The same number of two runs."""


class PairVerdict(NamedTuple):
    """Whether two runs differ in a number; p-values are two-sided."""

    method: str
    p_value: float
    adjusted_p_value: float
    separated: bool


def compare(
    runs: Sequence[str | Path | RunFiles],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    allow_different_data: bool = False,
) -> Comparison:
    """Compare runs by their folders; runs that differ in the seed alone become one entry.

    With probability at least `confidence` no verdict on robustness is wrong, and none on clean accuracy
    with the same probability. Upper bounds (NPPR, AR) found by searches of different settings have no
    differences and no ranks: `incomparable` of the result names the settings. Runs on different data,
    which `allow_different_data` permits, have none at all. `seed` orders the inputs in the guaranteed
    tests of rates.
    """
    check_confidence(confidence)
    groups = group_seeds(_read(runs))
    paired = _same_data(groups, allow_different=allow_different_data)
    shares = [_shares_of(group) for group in groups]
    keys = _keys(groups)
    reasons = _reasons(groups, keys)
    differences = _differences(shares, keys, reasons, confidence, seed) if paired else {}
    results = tuple(
        Compared(
            metric=key[0],
            source=key[1],
            incomparable=reasons.get(key, ""),
            standings=tuple(
                _standing(
                    at, group, key, None if _is_screened([group], key) else shares[at].get(key),
                    confidence, _rank(at, differences.get(key, ())),
                )
                for at, group in enumerate(groups)
            ),
            differences=differences.get(key, ()),
        )
        for key in keys
    )  # fmt: skip
    entries = _entries(groups)
    remarks = remarks_of(results, entries, confidence)
    return Comparison(
        schema_version=SCHEMA_VERSION,
        nppr_version=version("nppr"),
        answer=answer_of(results, entries),
        notes=(*remarks, *_notes(groups, results, paired=paired)),
        confidence=confidence,
        seed=seed,
        paired=paired,
        results=results,
        entries=entries,
    )


def _read(runs: Sequence[str | Path | RunFiles]) -> list[RunFiles]:
    if isinstance(runs, str | Path) or len(runs) < 2:
        given = 1 if isinstance(runs, str | Path) else len(runs)
        raise RunFolderError(
            f"`runs` must be two or more run folders, got {given}."
            " Example: nppr compare runs/a runs/b"
        )
    paths = [Path(run.path if isinstance(run, RunFiles) else run).resolve() for run in runs]
    for path, count in Counter(paths).items():
        if count > 1:
            raise RunFolderError(f"`runs` must be different folders, got {str(path)!r} twice.")
    return [run if isinstance(run, RunFiles) else read_run(run) for run in runs]


def group_seeds(runs: Sequence[RunFiles]) -> list[Group]:
    """Entries in the order of their first runs; a run whose seed is there already stays alone."""
    same: dict[str, list[RunFiles]] = {}
    for run in runs:
        same.setdefault(_identity(run.report), []).append(run)
    groups: dict[int, Group] = {}
    for found in same.values():
        seeds = {run.report.seed for run in found}
        for members in [found] if len(seeds) == len(found) else [[run] for run in found]:
            ordered = sorted(members, key=lambda run: run.report.seed)
            groups[min(runs.index(run) for run in members)] = tuple(ordered)
    return [group for _, group in sorted(groups.items())]


def _identity(report: ReportRecord) -> str:
    """Everything that determines the numbers, but the seed.

    The seed chooses the inputs where only some are evaluated; else the inputs must be the same.
    """
    chosen = {"fingerprint"} if report.settings.measure.inputs is not None else set[str]()
    parts = (
        report.classifier.model_dump(mode="json"),
        report.data.model_dump(mode="json", exclude=chosen),
        report.budget.model_dump(mode="json"),
        report.settings.model_dump(mode="json", exclude={"measure": {"seed"}}),
    )
    return json.dumps(parts, sort_keys=True)


def _same_data(groups: Sequence[Group], *, allow_different: bool) -> bool:
    """Whether all entries are on the same inputs; else an error, unless that is allowed."""
    first = groups[0]
    for group in groups[1:]:
        _require_same_task(first, group)
        known = _indices(group) and _indices(first)
        same = {r.report.data.fingerprint for r in group} == {
            r.report.data.fingerprint for r in first
        }
        if same and (not known or _indices(group) == _indices(first)):
            continue
        if allow_different:
            return False
        raise RunFolderError(
            f"`runs` must be on the same inputs, {str(first[0].path)!r} is on"
            f" {_described_inputs(first)} and {str(group[0].path)!r} on {_described_inputs(group)}."
            " Assess both on the same data, with the same --inputs and seeds, or add"
            " --allow-different-data to show their values without a verdict."
        )
    return True


def _require_same_task(first: Group, group: Group) -> None:
    """Raise `RunFolderError` where the entries count different things as correct."""
    ours, theirs = first[0].report, group[0].report
    same_model = ours.classifier.fingerprint == theirs.classifier.fingerprint
    other = ours.data.task_fingerprint != theirs.data.task_fingerprint
    if ours.data.task != theirs.data.task or (same_model and other):
        raise RunFolderError(
            f"`runs` must judge answers alike, {str(first[0].path)!r} counts an answer as correct if"
            f" {ours.data.task or 'it is the label'}, {str(group[0].path)!r} if"
            f" {theirs.data.task or 'it is the label'}{' by another function' * other}."
        )


def _indices(group: Group) -> set[int]:
    return {index for run in group if run.per_input for index in run.per_input["index"].tolist()}


def _described_inputs(group: Group) -> str:
    data = group[0].report.data
    several = f" for {len(group)} seeds" if len(group) > 1 else ""
    return (
        f"{data.inputs.evaluate:,} inputs of {data.name!r} (hash {data.fingerprint[:8]}){several}"
    )


def _shares_of(group: Group) -> dict[Key, Share]:
    """The numbers that all runs of an entry have, as means over the inputs of all of them.

    An input counts as often as it was measured, and its rates are added. The clean answers of one
    classifier are still one outcome per input if all seeds agree on them.
    """
    lines = [lines_of(run.per_input, run.path) for run in group]
    shares = [shares_of(run.report, each, run.path) for run, each in zip(group, lines, strict=True)]
    if len(group) == 1:
        return shares[0]
    if not all(lines):
        return {}
    indices = [next(iter(each.values()))["index"] for each in lines]
    union = np.unique(np.concatenate(indices))
    joined = {}
    for key in (key for key in shares[0] if all(key in each for each in shares)):
        above, below = np.zeros(len(union)), np.zeros(len(union))
        for own, each in zip(indices, shares, strict=True):
            at = np.searchsorted(union, own)
            above[at] += each[key].above
            below[at] += each[key].below
        same = key[0] is Metric.ACCURACY and bool(((above == 0) | (above == below)).all())
        joined[key] = Share(above, below, outcomes=same)
    return joined


def _keys(groups: Sequence[Group]) -> list[Key]:
    """The rows of all entries, by metric and then lowest first.

    The first NPPR is that of the widest learned set, which the page of a run quotes too.
    Learned noise with the reference noises is left out where no reference noise was worse anywhere.
    """
    lowest: dict[Key, float] = {}
    rows: dict[Key, Number] = {}
    shared: Counter[Key] = Counter()
    reports = [group[0].report for group in groups]
    won = {made.name for report in reports for made in report.distributions if made.winner}
    for report in reports:
        for key, row in headlines(report).items():
            if row.with_references and row.subject.noise not in won:
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
        return (SHARES.index(key[0]), *by_width(rows[key]), lowest[key], key[1])

    return sorted(lowest, key=place)


def _reasons(groups: Sequence[Group], keys: Sequence[Key]) -> dict[Key, str]:
    """Why numbers are not compared, for those of different searches: one sentence per difference."""
    differing = {key: found for key in keys if (found := differing_searches(groups, key))}
    rows: dict[str, list[str]] = {}
    for (metric, source), found in differing.items():
        rows.setdefault(found, []).append(f"{metric.value} {source}")
    inexact = [key for key in keys if key not in differing and _is_screened(groups, key)]
    screened = ", ".join(f"{metric.value} {source}" for metric, source in inexact)
    why = (
        f"Not compared: {screened}. 16-bit floats took part of their decisions, and a verdict needs"
        " exact counts. Repeat the runs without --engine."
    )
    return dict.fromkeys(inexact, why) | {
        key: f"Not compared: {', '.join(rows[found])}. These are upper bounds, which a weaker search"
        f" leaves higher, and the searches had different settings ({found}). Repeat the runs with the"
        " same settings."
        for key, found in differing.items()
    }


def _is_screened(groups: Sequence[Group], key: Key) -> bool:
    """Whether the counts of a row are not all the model's in some run."""
    reports = [run.report for group in groups for run in group]
    return any(
        row.tally == audit.source and not audit.discarded
        for report in reports
        if (row := headlines(report).get(key)) is not None
        for audit in report.audits
    )


def _differences(
    shares: Sequence[Mapping[Key, Share]],
    keys: Sequence[Key],
    incomparable: Mapping[Key, str],
    confidence: float,
    seed: int,
) -> dict[Key, tuple[Difference, ...]]:
    """The differences of all rows and pairs of entries.

    Those in robustness are decided together, and those in clean accuracy are.
    """
    found: dict[Key, tuple[Difference, ...]] = {}
    for clean in (True, False):
        asked = [
            (key, (i, j), (shares[i][key], shares[j][key]))
            for key in keys
            if (key[0] is Metric.ACCURACY) == clean and key not in incomparable
            for i, j in combinations(range(len(shares)), 2)
            if key in shares[i] and key in shares[j] and shares[i][key].meets(shares[j][key])
        ]
        verdicts = decide_pairs([pair for _, _, pair in asked], confidence, seed)
        for (key, entries, pair), verdict in zip(asked, verdicts, strict=True):
            a, b = common_numbers(*pair)
            size = paired_difference(a, b, confidence, seed)
            made = Difference(
                first=entries[0],
                second=entries[1],
                inputs=len(a),
                value=size.mean,
                confidence=confidence,
                guaranteed_low=size.betting.low,
                guaranteed_high=size.betting.high,
                approximate_low=size.normal.low,
                approximate_high=size.normal.high,
                first_better=int((a > b).sum()),
                second_better=int((b > a).sum()),
                **verdict._asdict(),
            )
            found[key] = (*found.get(key, ()), made)
    return found


def decide_pairs(pairs: Sequence[Pair], confidence: float, seed: int = 0) -> list[PairVerdict]:
    """Decide for each pair whether the means over its common inputs differ, and in which direction.

    Guaranteed: with probability at least `confidence` *no* separated pair has equal means or the
    opposite order, however the pairs depend on each other. Each pair has two one-sided hypotheses, and
    Holm's method decides all of them together. Each pair needs at least one common input.
    """
    if not pairs:
        return []
    error = (1 - confidence) / (2 * len(pairs))
    pvalues = np.array([_pvalues(a, b, error, seed) for a, b in pairs])
    adjusted = holm_pvalues(pvalues.ravel()).reshape(pvalues.shape).min(1)
    return [
        PairVerdict(
            method=SIGN_TEST if a.outcomes and b.outcomes else BETTING,
            p_value=min(1.0, 2 * float(both.min())),
            adjusted_p_value=float(corrected),
            separated=bool(corrected <= 1 - confidence),
        )
        for (a, b), both, corrected in zip(pairs, pvalues, adjusted, strict=True)
    ]


def _pvalues(first: Share, second: Share, error: float, seed: int) -> tuple[float, float]:
    """One p-value for each direction; it is 1 for the direction that was not observed."""
    a, b = common_numbers(first, second)
    outcomes = first.outcomes and second.outcomes
    above, below = paired_pvalues(a, b, error, seed, outcomes=outcomes)
    return (above, 1.0) if a.mean() > b.mean() else (1.0, below)


def _rank(entry: int, differences: Sequence[Difference]) -> int | None:
    """1 + the number of entries that are separated and better; None without differences."""
    if all(entry not in (each.first, each.second) for each in differences):
        return None
    lost = [{each.first, each.second} - {each.better} for each in differences if each.separated]
    return 1 + lost.count({entry})


def _standing(
    entry: int, group: Group, key: Key, share: Share | None, confidence: float, rank: int | None
) -> Standing:
    """The mean over the runs of an entry; that of one run at its own confidence as it is reported."""
    rows = [headlines(run.report).get(key) for run in group]
    known = [row for row in rows if row is not None and row.value is not None]
    if len(known) < len(rows):
        error = _absence(group, rows)
        return Standing(entry=entry, confidence=confidence, inputs=0, draws=0, error=error)
    first, values = known[0], [row.value for row in known if row.value is not None]
    relative = [run.report.headline(first.name, Metric.NORMALISED_ACCURACY) for run in group]
    normalised = [row.value for row in relative if row is not None and row.value is not None]
    normalised = normalised if len(normalised) == len(rows) else []
    interval, level, method, flags = _interval(known, share, confidence)
    alone = relative[0].own if len(relative) == 1 and relative[0] is not None else None
    return Standing(
        entry=entry,
        value=float(np.mean(values)),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confidence=level,
        method=method,
        direction=first.direction,
        std=_std(values),
        normalised=float(np.mean(normalised)) if normalised else None,
        normalised_std=_std(normalised),
        normalised_low=alone.low if alone else None,
        normalised_high=alone.high if alone else None,
        inputs=first.inputs if share is None else int(np.count_nonzero(share.below)),
        draws=first.draws,
        rank=rank,
        flags=flags,
    )


def _interval(
    rows: Sequence[Number], share: Share | None, confidence: float
) -> tuple[Interval | None, float, str | None, tuple[str, ...]]:
    """As one run quotes it; else a guaranteed one: exact for one outcome per input, or by betting."""
    first, used = rows[0], rows[0].shown
    if len(rows) == 1 and used and (first.confidence == confidence or share is None):
        flags = (*first.flags, *used.flags)
        return Interval(*used.ends), first.confidence, used.method, flags
    if share is None:
        return None, confidence, None, ()
    if share.outcomes:
        successes = np.array(round(float(share.counted.sum())))
        low, high = clopper_pearson(successes, len(share.counted), confidence)
        return Interval(float(low), float(high)), confidence, "clopper-pearson", ()
    found = betting(share.counted, confidence)
    ends = min(found.low, share.value), max(found.high, share.value)
    return Interval(*ends), confidence, "betting", ()


def _absence(group: Group, rows: Sequence[Number | None]) -> str:
    """Why an entry has no number."""
    reasons = []
    for row, run in zip(rows, group, strict=True):
        if row is None or row.value is None:
            seed = f"seed {run.report.seed}: " if len(rows) > 1 else ""
            reasons.append(seed + ((row.error if row else None) or "not measured in this run"))
    return "; ".join(dict.fromkeys(reasons))


def _std(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds, with n - 1 below; None for one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _entries(groups: Sequence[Group]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            name=name,
            classifier=group[0].report.classifier.name,
            data=group[0].report.data.name,
            budget=str(group[0].report.budget),
            runs=tuple(
                RunEntry(folder=str(run.path), seed=run.report.seed, grade=run.report.grade.letter)
                for run in group
            ),
            differs=differs,
        )
        for group, name, differs in zip(
            groups, names_of(groups), differing_settings(groups), strict=True
        )
    )


def _notes(groups: Sequence[Group], results: Sequence[Compared], *, paired: bool) -> Iterator[str]:
    """Yield what a reader must know before trusting the ranks."""
    for at, group in enumerate(groups):
        worst = max((run.report.grade for run in group), key=lambda grade: grade.letter)
        if worst.letter > "B":
            yield f"{letter(at)} has grade {worst.letter}: {worst.reason}."
    if not paired:
        yield (
            "Nothing is decided: the runs are on different data, which may cause any difference."
            " Assess both on the same inputs for a verdict."
        )
    if len({str(group[0].report.budget) for group in groups}) > 1:
        yield "The budgets differ: a difference between numbers is not one between classifiers alone."
    for run in (run for group in groups for run in group if not run.per_input):
        yield f"{run.path} holds no per_input.csv: its differences are not known."
    common = {result.metric for result in results if result.differences or result.incomparable}
    if len(groups) > 1 and common == {Metric.ACCURACY}:
        yield "The runs share no source: only the clean accuracy can be compared."
