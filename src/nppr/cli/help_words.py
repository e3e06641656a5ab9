"""Words of help texts that list what is registered: sources, parameters of transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nppr.core.transformations import EDGES, GROUPS, PARAMETERS
from nppr.export.exports import EXPORTS
from nppr.sources import SOURCES, default_sources, option_defaults
from nppr.sources.gaussian_offset import CALLS, FEWEST_CALLS
from nppr.statistics.noise_sets import DEFAULT_SIZES, MEANINGS, RATIO
from nppr.system.registry import BUILT_IN, Registry


def describe_sources() -> str:
    """Return the names of all sources, those with the same options together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, kind in SOURCES.items():
        names = [each.replace("_", "-") for each in option_defaults(kind)]
        kinds.setdefault(tuple(names), []).append(_with_origin(name, SOURCES))
    listed = [f"{', '.join(names)}: {', '.join(options)}." for options, names in kinds.items()]
    presets = [name for kind in SOURCES.values() for name in kind.presets]
    boxed = [name for name, kind in SOURCES.items() if kind.transforms]
    return " ".join(
        [
            "Sources separated by commas, each with its options after colons, as in pgd:steps=20.",
            "nppr: the worst noise found by a search (panels Noise and Search).",
            *listed,
            f"Presets: {', '.join(presets)}. all: every source.",
            f"Default of assess: {default_sources()}. With --transform: {', '.join(boxed)}.",
        ]
    )


def describe_parameters() -> str:
    """Return the names of the parameters of transformations, with their units."""
    units = (name + f" ({known.unit})" * bool(known.unit) for name, known in PARAMETERS.items())
    return ", ".join([*GROUPS, *units])


def describe_exports() -> str:
    """Return the names of all documents, with the package that brings one."""
    return ", ".join(_with_origin(name, EXPORTS) for name in EXPORTS.names())


def _with_origin(name: str, known: Registry[Any]) -> str:
    origin = known.origin_of(name)
    return name if origin == BUILT_IN else f"{name} (from {origin})"


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
    "offset_calls": lambda: str(CALLS),
    "fewest_offset_calls": lambda: str(FEWEST_CALLS),
}
"""Functions that return the words for the names that help texts have in braces."""
