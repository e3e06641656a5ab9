"""In which settings runs differ: it names them, and it decides which upper bounds can be compared.

NPPR is an upper bound that a search found, AR one that attacks found. A weaker search leaves a higher
bound whatever the classifier, so numbers of different searches are neither ranked nor subtracted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from nppr.core.tally import Metric
from nppr.report.findings import Key, headlines
from nppr.report.model import ReportRecord
from nppr.report.number import MERGED, Number
from nppr.report.run_files import RunFiles
from nppr.search.search_record import DistributionRecord

Group = tuple[RunFiles, ...]
"""Runs that differ in the seed alone, in the order of their seeds; the first represents all."""

Settings = dict[str, str]
"""Settings as text, by name."""

OWN_MODEL = "the classifier itself"

LONGEST_NAME = 48
"""Letters of a name; a longer one gives way to the name of the folder."""

UNNAMED = ("classifier", "hash of the weights", "nppr version", "device")
"""Settings that mean nothing in a name."""

PLAIN = ("weights", "budget", "data")
"""Settings that are understood without their name."""


def letter(position: int) -> str:
    """A short name of an entry: A to Z, then by number.

    >>> letter(1), letter(30)
    ('B', 'R31')
    """
    return chr(ord("A") + position) if position < 26 else f"R{position + 1}"


def differing_settings(groups: Sequence[Group]) -> list[Settings]:
    """For each entry the settings in which not all entries agree; `-` where there is none.

    A search that only some have is one line.
    """
    searched = all(group[0].report.settings.search for group in groups)
    return _differing([_settings_of(group, searched=searched) for group in groups])


def names_of(groups: Sequence[Group]) -> list[str]:
    """The classifier, then as much as tells it from others of that name, else the folder."""
    plain = [group[0].report.classifier.name for group in groups]
    differing = differing_settings(groups)
    names = list(plain)
    for key in (each for each in differing[0] if each not in UNNAMED):
        texts: dict[str, set[str]] = {}
        for name, each in zip(names, differing, strict=True):
            texts.setdefault(name, set()).add(each[key])
        names = [
            f"{name}, {'' if key in PLAIN else key + ' '}{each[key]}"
            if len(texts[name]) > 1
            else name
            for name, each in zip(names, differing, strict=True)
        ]
    for by_path in (False, True):
        repeated = Counter(names)
        folders = [group[0].path for group in groups]
        names = [
            f"{start} ({folder if by_path else folder.resolve().name})"
            if repeated[name] > 1 or len(name) > LONGEST_NAME
            else name
            for start, name, folder in zip(plain, names, folders, strict=True)
        ]
    return names


def differing_searches(groups: Sequence[Group], key: Key) -> str:
    """The settings of the search behind a number in which entries differ, in words; empty if none.

    Settings that only some entries have follow from others, and are listed only where there are none.
    """
    rows = {at: headlines(group[0].report).get(key) for at, group in enumerate(groups)}
    searches = {
        at: _search_of(groups[at], row)
        for at, row in rows.items()
        if row is not None and row.value is not None
    }
    differing = _differing(list(searches.values()))
    names = list(differing[0]) if differing else []
    shared = [name for name in names if all(name in each for each in searches.values())]
    return "; ".join(
        f"{name}: "
        + ", ".join(f"{each.get(name, '-')} in {letter(at)}" for at, each in searches.items())
        for name in shared or names
    )


def _differing(settings: Sequence[Settings]) -> list[Settings]:
    names = dict.fromkeys(name for each in settings for name in each)
    shown = [name for name in names if len({each.get(name, "-") for each in settings}) > 1]
    return [{name: each.get(name, "-") for name in shown} for each in settings]


def _settings_of(group: Group, *, searched: bool) -> Settings:
    report = group[0].report
    settings = report.settings.model_dump(mode="json", exclude={"measure", "sources"})
    settings |= report.settings.measure.model_dump(mode="json", exclude={"inputs", "seed"})
    if not searched:
        settings["search"] = "yes" if report.settings.search else None
    sources = {each.name: each.options for each in report.settings.sources}
    return {
        "classifier": report.classifier.name,
        "weights": report.classifier.weights or "default weights",
        "mean": _listed(report.classifier.mean or ()),
        "std": _listed(report.classifier.std or ()),
        "data": report.data.name,
        "task": report.data.task or "the label",
        "range": _range_of(report),
        "inputs": f"{report.data.inputs.evaluate:,}",
        "budget": str(report.budget),
        "sources": ", ".join(sources) or "-",
        **_flat(settings),
        **_flat({"options": sources}),
        "seed": _listed(run.report.seed for run in group),
        "nppr version": report.nppr_version,
        "device": report.environment.device,
        "hash of the weights": report.classifier.fingerprint[:8],
    }


def _range_of(report: ReportRecord) -> str:
    layout = report.data.layout
    if layout is None:
        return "[0, 1]"
    number = max(len(layout.low), len(layout.high))
    lows, highs = (ends if len(ends) > 1 else ends * number for ends in (layout.low, layout.high))
    return ", ".join(f"[{low:g}, {high:g}]" for low, high in zip(lows, highs, strict=True))


def _search_of(group: Group, row: Number) -> Settings:
    """The settings of the search behind a number; none where nothing was searched for."""
    report = group[0].report
    if row.metric is Metric.NPPR:
        return _noise_search(group, row)
    if row.metric is not Metric.AR:
        return {}
    return _merged_search(group) if row.source == MERGED else _attack_options(report, row.source)


def _learned(report: ReportRecord, row: Number) -> DistributionRecord | None:
    """The learned noise behind a row; of `per-input` the lowest one, at which its search starts."""
    if row.learned is None or row.learned.rung is None or row.learned.rung.is_fitted:
        return report.distribution(row.subject.noise)
    starts = [each for each in report.distributions if each.fit_seed is None]
    same = (each for each in reversed(starts) if each.family.floor == row.learned.floor)
    return next(same, None)


def _noise_search(group: Group, row: Number) -> Settings:
    """Return the settings of the search for one learned noise, with the seeds of all runs."""
    learned = [made for run in group if (made := _learned(run.report, row)) is not None]
    if not learned:
        return {}
    report, budget, search = group[0].report, learned[0].budget, learned[0].search
    conditions, settings = search.conditions, asdict(search.settings)
    if row.learned is None or row.learned.rung is None or row.learned.rung.is_fitted:
        del settings["per_input_calls"]  # the rung below
    own = conditions.fingerprint in (None, report.classifier.fingerprint)
    same = (budget.norm, budget.radius) == (report.budget.norm, report.budget.radius)
    found = {
        **_flat(settings, "search "),
        "fit inputs": str(conditions.fit_inputs),
        "select inputs": str(conditions.select_inputs),
        "seed": _listed(made.search.conditions.seed for made in learned),
        "quantise": str(conditions.quantise),
        "fitted on": OWN_MODEL if own else f"hash {conditions.fingerprint:.8}",
        "fitted in": "the budget of the run" if same else str(budget),
    }
    features = report.classifier.features
    if features is not None and search.settings.family.dependency.sees_input:
        own = features.fingerprint in (None, report.classifier.fingerprint)
        found["feature model"] = (
            OWN_MODEL if own else f"{features.model} (hash {features.fingerprint:.8})"
        )
        found["feature layer"] = features.layer
    return found


def _attack_options(report: ReportRecord, *names: str) -> Settings:
    """Return the options of attacks; a custom attack may have options that are not in its name."""
    chosen = [each for each in report.settings.sources if each.name in names]
    found = _flat({each.name: each.options for each in chosen})
    found["quantise"] = str(report.settings.measure.quantise)
    if any(each.fitted for each in chosen):
        found["fit inputs"] = str(report.data.inputs.fit)
    return found


def _merged_search(group: Group) -> Settings:
    """What AR over everything in the budget was found with: sources, options, draws, searches."""
    report = group[0].report
    names = sorted(s.name for s in report.settings.sources if s.metric is not Metric.CORRUPTION)
    rows = headlines(report).values()
    found = {
        "sources": _listed(names),
        "failed sources": _listed(sorted(row.name for row in rows if row.error)),
        "draws": str(report.settings.measure.draws),
        **_attack_options(report, *names),
    }
    noises = [row for row in rows if row.metric is Metric.NPPR and not row.with_references]
    searches = [_noise_search(group, row) for row in noises]
    for name in dict.fromkeys(name for search in searches for name in search):
        found[name] = _listed(dict.fromkeys(each[name] for each in searches if name in each))
    return {"learned noise": _listed(row.name for row in noises), **found}


def _flat(settings: Mapping[str, object], before: str = "") -> Settings:
    """Nested settings as one level, `search.family.floor` as `search family floor`."""
    found: Settings = {}
    for name, value in settings.items():
        called = f"{before}{name.replace('_', ' ')}"
        found |= _flat(value, called + " ") if isinstance(value, dict) else {called: _text(value)}
    return found


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return _listed(value)
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(_text(each) for each in values) or "-"
