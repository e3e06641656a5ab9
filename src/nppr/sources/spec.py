"""Sources from text: `gaussian,uniform:scale=0.5,pgd:steps=10:step=0.25`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nppr.budget import Budget
from nppr.errors import SpecError, unknown
from nppr.sources.attacks import CW, PGD
from nppr.sources.autoattack import AutoAttack
from nppr.sources.bound import Bound
from nppr.sources.corruptions import JPEG, Brightness, MotionBlur, SaltAndPepper
from nppr.sources.naming import options
from nppr.sources.noise import Gaussian, Laplace, Uniform
from nppr.sources.stress import Stress
from nppr.sources.universal import Universal
from nppr.sources.weak import WeakAdversary
from nppr.types import PerturbationSource

__all__ = [
    "ALL",
    "CORRUPTIONS",
    "DEFAULT_SOURCES",
    "NPPR",
    "PRESETS",
    "SOURCES",
    "check_unique",
    "parse_sources",
    "split_nppr",
]

SOURCES: dict[str, Callable[..., PerturbationSource]] = {
    "gaussian": Gaussian,
    "uniform": Uniform,
    "laplace": Laplace,
    "pgd": PGD,
    "cw": CW,
    "autoattack": AutoAttack,
    "universal": Universal,
    "weak-adversary": WeakAdversary,
    "stress": Stress,
    "bound": Bound,
}
"""All sources with a budget by name: each is built from it and the options that are its fields."""

CORRUPTIONS: dict[str, Callable[..., PerturbationSource]] = {
    "salt-and-pepper": SaltAndPepper,
    "motion-blur": MotionBlur,
    "brightness": Brightness,
    "jpeg": JPEG,
}
"""All corruptions by name: they know no budget."""

PRESETS = {
    "pgd-3": "pgd:steps=3",
    "pgd-10": "pgd:steps=10",
    "pgd-20": "pgd:steps=20:restarts=5",
    "cw-3": "cw:steps=3",
    "cw-10": "cw:steps=10",
    "cw-20": "cw:steps=20:restarts=5",
}
"""The paper's attacks by number of steps, each of a quarter of the radius: 3 steps on classifiers of
standard training, 10 on adversarially trained ones; 20 with restarts is ours."""

NPPR = "nppr"
"""Not a source but a search for one: the learned distributions are measured like all others."""

RESERVED = ("clean", "merged", "fit", NPPR)
"""Rows of a report that no source may bear the name of."""

DEFAULT_SOURCES = "nppr,gaussian,uniform,laplace,pgd"

ALL = "all"
ALL_SOURCES = ",".join([NPPR, *SOURCES, *CORRUPTIONS])
"""What `all` stands for: the paper's table in one run."""


def split_nppr(text: str) -> tuple[bool, str]:
    """Whether the list names `nppr`, and the list of the others.

    >>> split_nppr("nppr,uniform")
    (True, 'uniform')
    """
    parts = [part.strip() for part in text.replace(" ", "").split(",")]
    parts = [each for part in parts for each in (ALL_SOURCES.split(",") if part == ALL else [part])]
    wanted = [part for part in parts if part.split(":")[0] == NPPR]
    if len(wanted) > 1:
        raise SpecError(f"`sources` must be different, got {NPPR!r} twice.")
    if wanted and wanted[0] != NPPR:
        raise SpecError(
            f"`nppr` must have no options in --sources, got {wanted[0]!r}. They are options of the"
            " command. Example: --floor 0.5 --dependency input"
        )
    return bool(wanted), ",".join(part for part in parts if part not in wanted)


def parse_sources(text: str, budget: Budget) -> list[PerturbationSource]:
    """The sources of a comma-separated list, each with its options behind colons.

    >>> [source.name for source in parse_sources("uniform:scale=0.5,pgd:steps=10", Budget.linf(0.1))]
    ['uniform:scale=0.5', 'pgd']
    """
    sources = [_parse_source(part.strip(), budget) for part in text.split(",")]
    check_unique(sources)
    return sources


def check_unique(sources: Sequence[PerturbationSource]) -> None:
    """Raise `SpecError` if there is no source, or two of the same name."""
    if not sources:
        raise SpecError("`sources` must name at least one source, got none.")
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"`sources` must be different, got {twice[0]!r} twice.")
    taken = sorted(set(names) & set(RESERVED))
    if taken:
        raise SpecError(f"`sources` must not be named {taken[0]!r}: that row of a report is taken.")


def _parse_source(text: str, budget: Budget) -> PerturbationSource:
    preset, *more = text.split(":")
    name, *settings = ":".join([PRESETS.get(preset, preset), *more]).split(":")
    kinds = {**SOURCES, **CORRUPTIONS}
    if name not in kinds:
        raise unknown("source", name, [*kinds, *PRESETS, NPPR, ALL])
    defaults = options(kinds[name])
    values: dict[str, bool | int | float | str] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        field = option.replace("-", "_")
        if field not in defaults:
            raise unknown(f"option of {name}", option, [key.replace("_", "-") for key in defaults])
        if field in values:
            raise SpecError(f"`{option}` of {name} must be given once, got it twice.")
        if not equals:
            raise SpecError(f"`{option}` of {name} must have a value. Example: {option}=...")
        values[field] = _parse_value(f"{option} of {name}", value, type(defaults[field]))
    return CORRUPTIONS[name](**values) if name in CORRUPTIONS else SOURCES[name](budget, **values)


def _parse_value(argument: str, text: str, kind: type) -> bool | int | float | str:
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
