"""What a page shows beside numbers: the worst inputs, and draws of the learned noise.

`evidence.safetensors` in the run folder holds it: tensors by name, everything else in its
record. `n` inputs, `m` draws, `K` components, images `C x H x W`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nppr.errors import RecordError, RunFolderError
from nppr.records import one_line, read_record, write_record

__all__ = ["FILE", "Draws", "Evidence", "Worst", "read_evidence", "write_evidence"]

FILE = "evidence.safetensors"
FORMAT = "2"


@dataclass(frozen=True, eq=False)
class Worst:
    """The inputs that fared worst under a source, the worst first; images are small enough to show.

    `indices` in the data set, `labels`, `taken_for` `(n,)` int64: the answer to the image shown;
    `rates` `(n,)` float32: share of right draws; `clean`, `perturbed` `(n, C, H, W)` uint8; `delta`
    `(n, C, H, W)` float16, as a share of the radius.
    """

    source: str
    indices: Tensor
    labels: Tensor
    taken_for: Tensor
    rates: Tensor
    clean: Tensor
    delta: Tensor
    perturbed: Tensor


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of one learned source, as shares of the radius, averaged down to at most 32 pixels a side.

    `many` `(n, m, C, h, w)` float16: a few draws of many inputs, whose `indices` and `labels` are
    `(n,)` int64; `few` `(f, M, C, h, w)` float16: many draws of the first f of them. `weights`
    `(n, K)` float32: the mixture's weights for them, before sharpening. Of the first input: `means`
    `(K, D)` and `stds` `(K, D)` float32 of the latent components, and `covariances` `(K, d, d)`
    float32, d <= 16, along the first principal directions of the means, then of the
    components; `projected` `(K, d)` float32 are the means along them, less their own mean.
    """

    source: str
    indices: Tensor
    labels: Tensor
    many: Tensor
    few: Tensor
    weights: Tensor
    means: Tensor
    stds: Tensor
    covariances: Tensor
    projected: Tensor = field(default_factory=lambda: torch.zeros(0, 0))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything of a run that is shown and is not a number of the report."""

    worst: tuple[Worst, ...] = ()
    draws: tuple[Draws, ...] = ()


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write the file, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    names: dict[str, list[str]] = {"worst": [], "draws": []}
    groups: dict[str, Sequence[Worst | Draws]] = {"worst": evidence.worst, "draws": evidence.draws}
    for kind, entries in groups.items():
        for number, entry in enumerate(entries):
            names[kind].append(entry.source)
            for each in fields(entry):
                if each.name != "source":
                    value = getattr(entry, each.name)
                    tensors[f"{kind}.{number}.{each.name}"] = value.contiguous().cpu()
    write_record(folder / FILE, tensors, {"format": FORMAT, "names": names})


def read_evidence(folder: str | Path) -> Evidence | None:
    """What a run folder holds to be shown, or None where it holds nothing."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        tensors, record = read_record(path)
        if record.get("format") != FORMAT:
            raise ValueError(f"it has format {record.get('format')!r}, not {FORMAT!r}")
        names = record["names"]
        return Evidence(
            tuple(
                _entry(Worst, "worst", i, name, tensors) for i, name in enumerate(names["worst"])
            ),
            tuple(
                _entry(Draws, "draws", i, name, tensors) for i, name in enumerate(names["draws"])
            ),
        )
    except (RecordError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"`run` must hold a readable {FILE}, got {path}: {one_line(error)}."
            " Remove the file to render the page without pictures."
        ) from error


def _entry(kind: Any, group: str, number: int, source: str, tensors: Mapping[str, Tensor]) -> Any:
    """One record from the tensors that belong to it."""
    values = {
        each.name: tensors[f"{group}.{number}.{each.name}"]
        for each in fields(kind)
        if each.name != "source"
    }
    for value in values.values():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{group} {source!r} holds numbers that are not finite")
    return kind(source=source, **values)
