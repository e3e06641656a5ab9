"""Words of help texts that list what is registered: sources, parameters of transformations."""

from __future__ import annotations

from nppr.core.transformations import EDGES, GROUPS, PARAMETERS
from nppr.sources import SOURCES, default_sources, option_defaults
from nppr.sources.gaussian_offset import CALLS, FEWEST_CALLS
from nppr.statistics.noise_sets import DEFAULT_SIZES, RATIO


def describe_sources() -> str:
    """Return the names of all sources, those with the same options together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, kind in SOURCES.items():
        names = [each.replace("_", "-") for each in option_defaults(kind)]
        kinds.setdefault(tuple(names), []).append(name)
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


WORDS = {
    "sources": describe_sources(),
    "parameters": ", ".join(
        [
            *GROUPS,
            *(name + f" ({known.unit})" * bool(known.unit) for name, known in PARAMETERS.items()),
        ]
    ),
    "edges": "|".join(EDGES),
    "ratios": DEFAULT_SIZES[RATIO].replace("+", ","),
    "offset_calls": str(CALLS),
    "fewest_offset_calls": str(FEWEST_CALLS),
}
"""The words by the names that help texts have in braces."""
