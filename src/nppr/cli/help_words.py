"""Words of help texts that list what is registered. Nothing is imported for them, PyTorch neither."""

from __future__ import annotations

from collections.abc import Callable

from nppr.core.transform_parameters import EDGES, GROUPS, PARAMETERS
from nppr.export.documents import EXPORTS
from nppr.noise.admissible_set import NPPR
from nppr.source_names import (
    FEWEST_OFFSET_CALLS,
    OFFSET_CALLS,
    OWN_SOURCES,
    added_sources,
    list_names,
)
from nppr.statistics.noise_sets import DEFAULT_SIZES, MEANINGS, RATIO
from nppr.system.registry import BUILT_IN


def describe_sources() -> str:
    """Return the names of all sources, those with the same options together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, entry in OWN_SOURCES.items():
        names = [each.replace("_", "-") for each in entry.options]
        kinds.setdefault(tuple(names), []).append(name)
    listed = [f"{', '.join(names)}: {', '.join(options)}." for options, names in kinds.items()]
    added = [f"{name} (from {origin})" for name, origin in added_sources().items()]
    presets = [name for entry in OWN_SOURCES.values() for name in entry.presets]
    default = [name for name in list_names(OWN_SOURCES, False) if OWN_SOURCES[name].default]
    return " ".join(
        [
            "Sources separated by commas, each with its options after colons, as in pgd:steps=20.",
            "nppr: the worst noise found by a search (panels Noise and Search).",
            *listed,
            *([f"Installed: {', '.join(added)}."] if added else []),
            f"Presets: {', '.join(presets)}. all: every source.",
            f"Default of assess: {','.join([NPPR, *default])}.",
            f"With --transform: {', '.join(list_names(OWN_SOURCES, True))}.",
        ]
    )


def describe_parameters() -> str:
    """Return the names of the parameters of transformations, with their units."""
    units = (name + f" ({known.unit})" * bool(known.unit) for name, known in PARAMETERS.items())
    return ", ".join([*GROUPS, *units])


def describe_exports() -> str:
    """Return the names of all documents, with the package that brings one."""
    origins = ((name, EXPORTS.origin_of(name)) for name in EXPORTS.names())
    return ", ".join(name if at == BUILT_IN else f"{name} (from {at})" for name, at in origins)


WORDS: dict[str, Callable[[], str]] = {
    "sources": describe_sources,
    "parameters": describe_parameters,
    "exports": describe_exports,
    "edges": lambda: "|".join(EDGES),
    "noise_sets": lambda: ", ".join(f"{kind} ({words})" for kind, words in MEANINGS.items()),
    "set_examples": lambda: ", ".join(
        f"{kind}:{sizes.split('+')[-1]}" for kind, sizes in DEFAULT_SIZES.items()
    ),
    "ratios": lambda: DEFAULT_SIZES[RATIO].replace("+", ","),
    "offset_calls": lambda: str(OFFSET_CALLS),
    "fewest_offset_calls": lambda: str(FEWEST_OFFSET_CALLS),
}
"""Functions that return the words for the names that help texts have in braces."""
