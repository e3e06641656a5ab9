"""Registries of named objects, from nppr and from installed packages.

Sources, documents, model formats and data formats each have a registry. A package adds to one with
an entry point in its `pyproject.toml`:

    [project.entry-points."nppr.sources"]
    square = "my_package:Square"

Objects are imported on first use. A package that fails produces a warning, or an error if you
request one of its objects by name.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Self, TypeVar

from nppr.errors import NpprError, PluginError, reason_of
from nppr.system import user_code
from nppr.system.user_code import ProcessEnded, contain_exits

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUILT_IN = "nppr"
"""The origin of everything that no other distribution provides."""

LONGEST_REASON = 300

_loading = [BUILT_IN]
"""Origins of the objects that are being imported, the innermost last."""


@dataclass(frozen=True)
class AddedPoint:
    """An entry point of an installed distribution: a name for the object at `module:name`."""

    name: str
    group: str
    place: str
    origin: str

    def __str__(self) -> str:
        return f"entry point {self.name} = {self.place} ({self.group}) of {self.origin}"


class Registry(Mapping[str, T]):
    """Objects of one kind by name; `registry[name]` imports the object if necessary.

    `kind` is the word for such an object in messages, `group` the group of entry points that add to
    it. `accepts` is the class of the objects, as `module:name`; with `classes`, they are its
    subclasses. `own` holds the places of nppr's own objects. `claims` returns further names that an
    object takes, and `reserved` names cannot be taken.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        accepts: str,
        *,
        classes: bool = False,
        own: Mapping[str, str] | None = None,
        claims: Callable[[T], Iterable[str]] = lambda _: (),
        reserved: Iterable[str] = (),
    ) -> None:
        self.kind = kind
        self._group, self._accepts, self._classes = group, accepts, classes
        self._places = dict(own or {})
        self._claims = claims
        self._things: dict[str, T] = {}
        self._origins = dict.fromkeys((*self._places, *reserved), BUILT_IN)
        """Owner of each name, including names that an object claims."""
        self._failures: dict[str, str] = {}
        self._refused: set[AddedPoint] = set()

    def add(self, name: str, thing: T) -> None:
        """Register an object; it may replace one that was defined in the same place."""
        known, origin = self._things.get(name), self._find_origin(name, thing)
        names = (name, *self._claims(thing))
        if known is None or _place_of(known) != _place_of(thing):
            expected = {name} & self._places.keys() if origin == BUILT_IN else set()
            for each in sorted(self._origins.keys() & {*names} - expected):
                raise PluginError(
                    f"the {self.kind} name {each!r} is taken by {self._origins[each]}."
                )
        self._things[name] = thing
        self._origins |= dict.fromkeys(names, origin)

    def names(self) -> list[str]:
        """Return all names in a fixed order, nppr's first, without importing anything."""
        ours = [name for name in self._things if self._origins[name] == BUILT_IN]
        return list(dict.fromkeys([*self._places, *ours, *self._added(), *self._things]))

    def own(self) -> dict[str, T]:
        """Return the objects that nppr itself provides."""
        names = dict.fromkeys([*self._places, *self._things])
        return {name: self[name] for name in names if self.origin_of(name) == BUILT_IN}

    def origin_of(self, name: str) -> str:
        """Return `nppr`, or the distribution and version that provide an object."""
        return self._origins[name] if name in self._origins else self._added()[name].origin

    @contextlib.contextmanager
    def guarded(self, thing: T) -> Iterator[None]:
        """Turn a failure in the code of a package into a one-line `PluginError`."""
        name = next(name for name, known in self._things.items() if known is thing)
        if self._origins[name] == BUILT_IN:
            yield
            return
        try:
            with contain_exits(), contextlib.redirect_stdout(sys.stderr):
                yield
        except NpprError:
            raise
        except Exception as error:  # the code of a package may fail in any way
            where = f"the {self.kind} {name!r} of {self._origins[name]}"
            raise PluginError(f"{where} failed: {_reason(error)}") from error

    def copy(self) -> Self:
        """Return a registry with the same objects, to which others can be added."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set):
                setattr(other, name, value.copy())
        return other

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._places or name in self._added()

    def __getitem__(self, name: str) -> T:
        """Return the object with this name; raise `PluginError` if its package fails."""
        if name not in self._things:
            if name in self._places:
                self.add(name, load_object(self._places[name]))
            else:
                self._load(self._added()[name])
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of usable objects; warn about packages that fail."""
        for name in self.names():
            if name not in self._failures:
                try:
                    self[name]
                except PluginError as error:
                    logger.warning("%s", error)
                else:
                    yield name

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _added(self) -> dict[str, AddedPoint]:
        """Return the entry points that add a name; warn once about each whose name is taken."""
        found: dict[str, AddedPoint] = {}
        for point in added_points(tuple(sys.path)):
            if point.group != self._group:
                continue
            other = found.get(point.name)
            holder = self._origins.get(point.name) if other is None else other.origin
            if holder in (None, point.origin) and other is None:
                found[point.name] = point
            elif point not in self._refused:
                self._refused.add(point)
                logger.warning(
                    "%s is left out: the %s name %r is taken by %s. Uninstall one of them.",
                    point, self.kind, point.name, holder,
                )  # fmt: skip
        return found

    def _find_origin(self, name: str, thing: T) -> str:
        """Return who provides an object, also if other code imported the module of a package."""
        top = _top_of(thing.__module__) if isinstance(thing, type) else BUILT_IN
        for point in () if top == BUILT_IN else added_points(tuple(sys.path)):
            if (point.group, point.name) == (self._group, name) and _top_of(point.place) == top:
                return point.origin
        return _loading[-1]

    def _load(self, point: AddedPoint) -> None:
        """Import the object at an entry point, and register it."""
        if point.name not in self._failures:
            before = self._things.copy(), self._origins.copy()
            _loading.append(point.origin)
            try:
                # Standard output belongs to the result of a command.
                with contain_exits(), contextlib.redirect_stdout(sys.stderr):
                    thing = load_object(point.place)
                    self._require_kind(point.name, thing)
                    self.add(point.name, thing)
            except Exception as error:  # the code of a package may fail in any way
                self._things, self._origins = before
                self._failures[point.name] = f"{point} cannot be used: {_reason(error)}"
            finally:
                _loading.pop()
        if point.name in self._failures:
            raise PluginError(self._failures[point.name])

    def _require_kind(self, name: str, thing: object) -> None:
        """Raise `PluginError` unless the object is of the kind that the registry holds."""
        wanted = load_object(self._accepts)
        is_class = isinstance(thing, type) and issubclass(thing, wanted)
        if not (is_class if self._classes else isinstance(thing, wanted)):
            wanted_as = "a subclass of" if self._classes else "an instance of"
            got = f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
            place = self._accepts.replace(":", ".")
            raise PluginError(f"its object must be {wanted_as} {place}, got {got}.")
        if self._classes and (kind := getattr(thing, "kind", name)) != name:
            raise PluginError(f"its `kind` must be {name!r}, the entry point's name, got {kind!r}.")


def load_object(place: str) -> Any:
    """Return the object at a place, `module:name`."""
    entry = metadata.EntryPoint("", place, "")
    if not entry.pattern.match(place):
        raise PluginError("its place must be module:name.")
    return entry.load()


def _top_of(place: str) -> str:
    return place.partition(":")[0].partition(".")[0]


def _place_of(thing: object) -> object:
    """Return where a class is defined, so that a notebook can define it again; else an identity."""
    return (thing.__module__, thing.__qualname__) if isinstance(thing, type) else id(thing)


def _reason(error: Exception) -> str:
    """Return an error as one line, with the line of the package's code that raised it."""
    if isinstance(error, PluginError):
        return str(error)
    cause = error.__cause__ if isinstance(error, ProcessEnded) else error
    frames = traceback.extract_tb(cause.__traceback__ if cause else None)
    ours = (__file__, user_code.__file__, importlib.__file__, metadata.__file__)
    lines = [
        f" at {frame.filename}:{frame.lineno}"
        for frame in frames
        if frame.filename not in ours and not frame.filename.startswith("<")
    ]
    text = " ".join(f"{type(error).__name__}: {reason_of(error)}".split())[:LONGEST_REASON].rstrip(
        ".: "
    )
    return f"{text}{''.join(lines[-1:])}. Repair or uninstall the package."


@cache
def added_points(path: tuple[str, ...]) -> tuple[AddedPoint, ...]:
    """Return all entry points that add to nppr, of the distributions on a search path.

    If several distributions share a name, the first on the path counts, as in an import.
    """
    found: dict[str, list[AddedPoint]] = {}
    for distribution in metadata.distributions(path=list(path)):
        place = str(getattr(distribution, "_path", "an installed package"))
        try:
            if f"[{BUILT_IN}." not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.metadata["Name"] or place
            version = distribution.metadata["Version"] or "without a version"
            points = [
                AddedPoint(each.name, each.group, each.value, f"{name} {version}")
                for each in distribution.entry_points
                if each.group.startswith(f"{BUILT_IN}.")
            ]
        except Exception as error:  # damaged metadata fail in any way
            logger.warning("%s has damaged metadata: %s", place, _reason(error))
            continue
        found.setdefault(name, points)
    return tuple(point for name in sorted(found) for point in found[name])
