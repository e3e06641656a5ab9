"""What entries are called, and the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from nppr.compare.entries import Gathered
from nppr.report.schema import Report

__all__ = ["differing", "names_of"]

LONGEST = 48
"""Letters of a name; a longer one gives way to the name of the folder."""

HASH = "hash of the weights"
UNNAMED = ("classifier", HASH, "nppr version", "device")
"""Facts that say nothing in a name."""

PLAIN = ("weights", "budget", "data")
"""Facts that are understood without saying what they are."""


def differing(entries: Sequence[Gathered]) -> list[dict[str, str]]:
    """For each entry the settings in which not all entries agree, as text; `-` where there is none.

    A group of settings that only some have, such as those of a fit, is one line.
    """
    settings = [entry.first.report.settings for entry in entries]
    partial = {
        name
        for each in settings
        for name, value in each.items()
        if isinstance(value, dict) and not all(other.get(name) for other in settings)
    }
    facts = [_facts(entry, partial) for entry in entries]
    names = list(dict.fromkeys(name for each in facts for name in each))
    shown = [name for name in names if len({each.get(name, "-") for each in facts}) > 1]
    return [{name: each.get(name, "-") for name in shown} for each in facts]


def names_of(entries: Sequence[Gathered]) -> list[str]:
    """The classifier, then as much as tells it from others of that name, else the folder."""
    plain = [str(entry.first.report.classifier["name"]) for entry in entries]
    names = list(plain)
    facts = differing(entries)
    for key in facts[0]:
        if key not in UNNAMED:
            names = _extended(names, [each[key] for each in facts], "" if key in PLAIN else key)
    for folder in (_folder, _path):
        repeated = Counter(names)
        names = [
            f"{start} ({folder(entry)})" if repeated[name] > 1 or len(name) > LONGEST else name
            for start, name, entry in zip(plain, names, entries, strict=True)
        ]
    return names


def _extended(names: Sequence[str], texts: Sequence[str], key: str) -> list[str]:
    """Names with this fact behind them, where it tells apart entries of the same name."""
    told: dict[str, set[str]] = {}
    for name, text in zip(names, texts, strict=True):
        told.setdefault(name, set()).add(text)
    return [
        f"{name}, {key} {text}".replace(",  ", ", ") if len(told[name]) > 1 else name
        for name, text in zip(names, texts, strict=True)
    ]


def _folder(entry: Gathered) -> str:
    return Path(entry.first.path).resolve().name


def _path(entry: Gathered) -> str:
    return str(entry.first.path)


def _facts(entry: Gathered, partial: Collection[str]) -> dict[str, str]:
    report: Report = entry.first.report
    settings = {
        name: ("yes" if value else None) if name in partial else value
        for name, value in report.settings.items()
    }
    classifier, data = report.classifier, report.data
    return {
        "classifier": str(classifier["name"]),
        "weights": str(classifier.get("weights") or "default weights"),
        HASH: str(classifier.get("fingerprint"))[:8],
        "data": str(data["name"]),
        "inputs": f"{data['inputs']['evaluate']:,}",
        "budget": f"{report.budget['norm']} {report.budget['text']}",
        **_flat(settings),
        "seed": ", ".join(str(run.report.seed) for run in entry.runs),
        "nppr version": report.nppr_version,
        "device": str(report.environment.get("device")),
    }


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as one level, `fit.family.dependency` as `fit family dependency`."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        called = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            found |= _flat(value, called + " ")
        elif called not in ("inputs",):
            found[called] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(each) for each in value) or "-"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
