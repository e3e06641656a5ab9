"""Pictures beside the numbers of a page: the worst inputs, draws of learned laws, parameters.

`evidence.safetensors` in the run folder holds it: tensors by name, everything else in its
record. Beside each tensor is its shape: `n` inputs, `m` draws, `K` components, images `C H W`,
`P` parameters of a transformation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, TypeVar, get_type_hints

import torch
from torch import Tensor

from nppr.errors import RecordError, RunFolderError
from nppr.system.records import read_record, shorten_error, write_record

EVIDENCE = "evidence.safetensors"
_FORMAT = 2
LEVELS = 65_535
"""The whole number that encodes 1 for inputs that are not images."""

_WHOLE = (
    "indices", "labels", "taken_for", "clean", "perturbed", "correct", "tried", "images", "index",
    "label",
)  # fmt: skip
"""Tensors of whole numbers; all others hold real ones."""


@dataclass(frozen=True, eq=False)
class Worst:
    """The inputs that did worst under a source, the worst first; images are small enough to show.

    `indices` in the data set, `labels` and `taken_for`, the answer to the image shown, are int64;
    `rates` float32 are fractions of correct draws; `clean` and `perturbed` are uint8, or int32 from 0
    to 65,535 if the data are not images; `delta` is float16 relative to the radius. Under a
    transformation `delta` is the difference of both images, and `parameters` float32 produced the image
    shown.
    """

    source: str
    indices: Annotated[Tensor, "n"]
    labels: Annotated[Tensor, "n"]
    taken_for: Annotated[Tensor, "n"]
    rates: Annotated[Tensor, "n"]
    clean: Annotated[Tensor, "n C H W"]
    delta: Annotated[Tensor, "n C H W"]
    perturbed: Annotated[Tensor, "n C H W"]
    parameters: Annotated[Tensor, "n P"] = field(default_factory=lambda: torch.zeros(0, 0))


@dataclass(frozen=True, eq=False)
class NoiseDraws:
    """Draws of one learned source, relative to the radius, averaged down to at most 32 pixels per side.

    `many` float16 are a few draws of many inputs, whose `indices` and `labels` are int64; `few` float16
    are many draws of the first f of them. `weights` float32 are the mixture's weights for them, before
    sharpening. Float32 for the first input: `means` and `stds` of the latent components,
    `covariances` along the first d <= 16 principal directions of the means, then of the components, and
    `projected`: the means along these directions, less their own mean.
    """

    source: str
    indices: Annotated[Tensor, "n"]
    labels: Annotated[Tensor, "n"]
    many: Annotated[Tensor, "n m C h w"]
    few: Annotated[Tensor, "f M C h w"]
    weights: Annotated[Tensor, "n K"]
    means: Annotated[Tensor, "K D"]
    stds: Annotated[Tensor, "K D"]
    covariances: Annotated[Tensor, "K d d"]
    projected: Annotated[Tensor, "K d"] = field(default_factory=lambda: torch.zeros(0, 0))


@dataclass(frozen=True, eq=False)
class NoiseLook:
    """One kind of noise on one input: a sample, and what many draws of it are made of.

    `sample` float16 is a part of a draw, relative to the radius. `clean` and `perturbed` are as in
    `Worst`, and `taken_for` is the answer to `perturbed`. Float32 over many draws: `spectrum`, the
    logarithm to base 10 of the power at every frequency over the mean power, zero frequency in the
    middle, and `histogram`, the fractions of values in equal bins from `-span` to `span` radii.
    """

    source: str
    index: Annotated[Tensor, ""]
    label: Annotated[Tensor, ""]
    taken_for: Annotated[Tensor, ""]
    clean: Annotated[Tensor, "C H W"]
    perturbed: Annotated[Tensor, "C H W"]
    sample: Annotated[Tensor, "C y x"]
    spectrum: Annotated[Tensor, "h w"]
    histogram: Annotated[Tensor, "b"]
    span: Annotated[Tensor, ""]


@dataclass(frozen=True, eq=False)
class Profile:
    """Answers by parameter: the range of each cut into b equal bins, the other parameters uniform.

    `correct` of `tried` inputs were classified correctly, int64, one draw of each in every bin.
    """

    source: str
    correct: Annotated[Tensor, "P b"]
    tried: Annotated[Tensor, "P b"]


@dataclass(frozen=True, eq=False)
class Strip:
    """Some inputs at the worst, the median and the best of the parameters tried, by their margin.

    `images` are uint8, `parameters` float32, `taken_for` int64 is the answer to each image.
    """

    source: str
    indices: Annotated[Tensor, "n"]
    labels: Annotated[Tensor, "n"]
    taken_for: Annotated[Tensor, "n s"]
    images: Annotated[Tensor, "n s C H W"]
    parameters: Annotated[Tensor, "n s P"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything of a run that is shown and is not a number of the report."""

    worst: tuple[Worst, ...] = ()
    draws: tuple[NoiseDraws, ...] = ()
    profiles: tuple[Profile, ...] = ()
    strips: tuple[Strip, ...] = ()
    looks: tuple[NoiseLook, ...] = ()


_Entry = TypeVar("_Entry", Worst, NoiseDraws, Profile, Strip, NoiseLook)


def _shapes_of(kind: type[object]) -> dict[str, str]:
    """The shapes of the tensors of a record, by their names."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if name != "source"}


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write the file, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    names: dict[str, list[str]] = {}
    for group in fields(evidence):
        entries = getattr(evidence, group.name)
        names[group.name] = [entry.source for entry in entries]
        for number, entry in enumerate(entries):
            for name in _shapes_of(type(entry)):
                value = getattr(entry, name)
                tensors[f"{group.name}.{number}.{name}"] = value.contiguous().cpu()
    write_record(folder / EVIDENCE, tensors, {"format": _FORMAT, "names": names})


def read_evidence(folder: str | Path) -> Evidence | None:
    """Return the pictures of a run folder, or None if it holds none."""
    path = Path(folder) / EVIDENCE
    if not path.exists():
        return None
    try:
        tensors, record = read_record(path)
        if record.get("format") != _FORMAT:
            raise ValueError(f"it has format {record.get('format')!r}, not {_FORMAT!r}")
        names = record["names"]
        return Evidence(
            _entries(Worst, "worst", names, tensors),
            _entries(NoiseDraws, "draws", names, tensors),
            _entries(Profile, "profiles", names, tensors),
            _entries(Strip, "strips", names, tensors),
            _entries(NoiseLook, "looks", names, tensors),
        )
    except (RecordError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"`run` must hold a readable {EVIDENCE}, got {path}: {shorten_error(error)}."
            " Remove the file to render the page without pictures."
        ) from error


def _entries(
    kind: type[_Entry], group: str, names: Mapping[str, list[str]], tensors: Mapping[str, Tensor]
) -> tuple[_Entry, ...]:
    """The records of a group from the tensors that belong to them."""
    found = []
    optional = {each.name for each in fields(kind) if each.default_factory is not MISSING}
    listed = names.get(group, []) if isinstance(names, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"its names of {group!r} must be a list of texts")
    for number, source in enumerate(listed):
        values = {
            name: tensors[f"{group}.{number}.{name}"]
            for name in _shapes_of(kind)
            if name not in optional or f"{group}.{number}.{name}" in tensors
        }
        found.append(kind(source, **values))
        for fault in _faults(found[-1]):
            raise ValueError(f"{fault} of {source!r}")
    return tuple(found)


def _faults(record: Worst | NoiseDraws | Profile | Strip | NoiseLook) -> Iterator[str]:
    """Tensors that are of another kind or shape than declared, or not finite.

    A letter is the same size in all shapes of a record. Tensors that may be left out are not compared.
    """
    optional = {each.name for each in fields(record) if each.default_factory is not MISSING}
    sizes: dict[str, int] = {}
    for name, shape in _shapes_of(type(record)).items():
        value, letters = getattr(record, name), shape.split()
        if value.is_floating_point() == (name in _WHOLE):
            kind = "whole" if name in _WHOLE else "real"
            yield f"{name!r} must hold {kind} numbers, holds {value.dtype}"
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            yield f"NaN or infinite numbers in {name!r}"
        left_out = name in optional and not value.numel()
        known = () if left_out else zip(letters, value.shape, strict=False)
        same = [sizes.setdefault(letter, size) == size for letter, size in known]
        if value.dim() != len(letters) or not all(same):
            yield f"shape {tuple(value.shape)}, not ({', '.join(letters)}) with {sizes}, in {name!r}"
