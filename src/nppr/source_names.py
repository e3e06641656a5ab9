"""Our sources by the names that people type, checked before PyTorch is loaded.

This is what a command line needs to know of the classes in `nppr.sources`. A source of an installed
package is known by its name alone until it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nppr.errors import SpecError, unknown
from nppr.noise.admissible_set import NPPR
from nppr.system.registry import Registry

Option = bool | int | float | str

ALL = "all"
NOISE_SAMPLES = "noise-samples"
"""The source that draws from frames of the user's sensor."""

RESERVED = ("clean", "merged", "fit", NPPR, ALL)

SOURCES: Registry[Any] = Registry(
    "source",
    "nppr.sources",
    "nppr.sources.base:Source",
    classes=True,
    claims=lambda kind: kind.presets,
    reserved=RESERVED,
)
"""The classes of all sources by the name they have on a command line, in the order of `all`.

Ours are in it once `nppr.sources` is imported.
"""

OFFSET_CALLS, FEWEST_OFFSET_CALLS = 40, 8
"""Forward and backward passes per input of the search for an offset, by default and at least."""


@dataclass(frozen=True)
class SourceEntry:
    """The declaration of a source for the command line: its options with their defaults, and more.

    All other attributes have the meaning that they have in `Source`.
    """

    options: Mapping[str, Option]
    presets: Mapping[str, str] = field(default_factory=dict)
    default: bool = False
    is_reference: bool = False
    adds: bool = True
    transforms: bool = True

    def fits(self, boxed: bool) -> bool:
        """Whether the source accepts the box of a transformation, or else a ball of added noise."""
        return self.transforms if boxed else self.adds


_NOISE: dict[str, Option] = {"scale": 1.0}
_ATTACK: dict[str, Option] = {"steps": 10, "step": 0.25, "restarts": 1, "random_start": True}
_BOUND: dict[str, Option] = {
    "reference": "uniform", "set": "ratio", "ratio": "1+2+5+10", "size": "", "patterns": 0,
    "least": 0.0,
}  # fmt: skip
_CORRUPTION = SourceEntry({"severity": 1, "constants": "auto"})

OWN_SOURCES = {
    "gaussian": SourceEntry(_NOISE, default=True, is_reference=True),
    "uniform": SourceEntry(_NOISE, default=True, is_reference=True),
    "laplace": SourceEntry(_NOISE, default=True, is_reference=True, transforms=False),
    "pgd": SourceEntry(
        _ATTACK | {"step": 1.0}, {"pgd-20": "pgd:steps=20:restarts=5"}, default=True
    ),
    "pgd-classic": SourceEntry(
        _ATTACK, {"pgd-3": "pgd-classic:steps=3", "pgd-10": "pgd-classic:steps=10"}
    ),
    "cw": SourceEntry(
        _ATTACK,
        {"cw-3": "cw:steps=3", "cw-10": "cw:steps=10", "cw-20": "cw:steps=20:restarts=5"},
    ),
    "weak-adversary": SourceEntry({"variance": 0.1, "step": 0.25}, transforms=False),
    "autoattack": SourceEntry({"batch": 100}, transforms=False),
    "scan": SourceEntry({"points": 65}, default=True, adds=False),
    "universal": SourceEntry({"calls": 30720, "step": 0.25}),
    "patterns": SourceEntry({}, transforms=False),
    "bound": SourceEntry(_BOUND),
    "salt-and-pepper": _CORRUPTION,
    "motion-blur": _CORRUPTION,
    "brightness": _CORRUPTION,
    "jpeg": _CORRUPTION,
    "stress": SourceEntry({"q": "1+10+100+1000"}),
}
"""In the order of `all`."""


def added_sources() -> dict[str, str]:
    """Return the names of all sources but ours, with the package of each; nothing is imported."""
    return {each: SOURCES.origin_of(each) for each in SOURCES.names() if each not in OWN_SOURCES}


def require_source_names(text: str, *, boxed: bool) -> None:
    """Raise `SpecError` if a list of sources has a wrong name or option; nothing is imported.

    If packages add sources, a name that is not built in may be a preset of one of them. It is checked
    when that source is imported.
    """
    presets = [name for each in OWN_SOURCES.values() for name in each.presets]
    added = added_sources()
    for part in split_names(text, list_names(OWN_SOURCES, boxed))[1]:
        if not added or part.partition(":")[0] in (*OWN_SOURCES, *presets):
            read_source(part, OWN_SOURCES, boxed=boxed)


def require_reference(name: str, *, boxed: bool) -> None:
    """Raise `SpecError` unless bounds can be stated around noise of this name."""
    fitting = {key: each for key, each in OWN_SOURCES.items() if each.fits(boxed)}
    known = [key for key, each in fitting.items() if each.is_reference]
    if name not in known:
        raise unknown("reference", name, known)


def list_names(known: Mapping[str, SourceEntry], boxed: bool) -> list[str]:
    """Return the names of the sources that fit the box of a transformation, or added noise."""
    return [name for name, each in known.items() if each.fits(boxed)]


def split_names(text: str, fitting: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether a list names `nppr`, and its other parts; `all` expands to all that fit."""
    parts = [part.strip() for part in text.replace(" ", "").split(",")]
    parts = [each for part in parts for each in ([NPPR, *fitting] if part == ALL else [part])]
    wanted = [part for part in parts if part.split(":")[0] == NPPR]
    if len(wanted) > 1:
        raise SpecError(f"`sources` must be different, got {NPPR!r} twice.")
    if wanted and wanted[0] != NPPR:
        raise SpecError(
            f"`nppr` must have no options in --sources, got {wanted[0]!r}. They are options of the"
            " command. Example: --floor 0.5 --dependency input"
        )
    return bool(wanted), [part for part in parts if part not in wanted]


def read_source(
    text: str, known: Mapping[str, SourceEntry], *, boxed: bool
) -> tuple[str, dict[str, Option]]:
    """Return the name and the options of one source, `NAME:OPTION=VALUE`."""
    first, *more = text.split(":")
    presets = {name: spec for each in known.values() for name, spec in each.presets.items()}
    name, *settings = ":".join([presets.get(first, first), *more]).split(":")
    if name == NOISE_SAMPLES:
        raise SpecError(
            f"`{name}` must be an option of its own, with its frames, got it among the sources."
            f" Example: --{name} frames/"
        )
    if name not in known:
        raise unknown("source", name, [*known, *presets, NPPR, ALL])
    entry = known[name]
    if not entry.fits(boxed):
        needed = "added noise: --norm and --eps" if entry.adds else "a transformation: --transform"
        raise SpecError(
            f"`sources` must fit the budget, got {name!r}, which needs {needed}."
            f" Here: {', '.join(list_names(known, boxed))}."
        )
    values: dict[str, Option] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        key = option.replace("-", "_")
        if key not in entry.options:
            names = [each.replace("_", "-") for each in entry.options]
            raise unknown(f"option of {name}", option, names)
        if key in values:
            raise SpecError(f"`{option}` of {name} must be given once, got it twice.")
        if not equals:
            raise SpecError(f"`{option}` of {name} must have a value. Example: {option}=...")
        values[key] = _parse_value(f"{option} of {name}", value, type(entry.options[key]))
    return name, values


def _parse_value(argument: str, text: str, kind: type) -> Option:
    if kind is str:
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise SpecError(f"`{argument}` must be true or false, got {text!r}.")
        return text == "true"
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise SpecError(f"`{argument}` must be {expected}, got {text!r}.") from None
