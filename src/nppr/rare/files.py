"""Results of splitting, kept in a file so that nothing computed is lost."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from nppr.errors import RunFolderError
from nppr.rare.estimate import Rare
from nppr.rare.levels import Status
from nppr.tensor_files import write_tensors

__all__ = ["joined", "rare_csv", "read_rare", "write_rare"]

ARRAYS = ("positions", "indices", "log_p", "log_low", "log_high", "spread", "calls")


def joined(parts: Sequence[Rare]) -> Rare:
    """The results of several groups of inputs of one source as one."""
    first = parts[0]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    return Rare(
        source=first.source,
        **arrays,
        status=tuple(status for part in parts for status in part.status),
        particles=min(part.particles for part in parts),
        replicates=first.replicates,
        confidence=first.confidence,
    )


def rare_csv(found: Mapping[str, Rare]) -> str:
    """One line an input that splitting looked at: its failure probability with an interval."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["index", "source", "p", "low", "high", "status", "calls"])
    for source, rare in found.items():
        columns = (rare.indices, rare.p, rare.low, rare.high, rare.status, rare.calls)
        for index, p, low, high, status, calls in zip(*columns, strict=True):
            shares = (f"{share:.6g}" for share in (p, low, high))
            writer.writerow([index, source, *shares, status.value, calls])
    return text.getvalue()


def write_rare(path: Path, rare: Rare, identity: str) -> None:
    """Write the file whole or not at all; `identity` says what was looked at."""
    tensors = {name: torch.from_numpy(np.array(getattr(rare, name))) for name in ARRAYS}
    facts = {
        "source": rare.source,
        "status": [status.value for status in rare.status],
        "particles": rare.particles,
        "replicates": rare.replicates,
        "confidence": rare.confidence,
    }
    write_tensors(path, tensors, {"identity": identity, "facts": json.dumps(facts)})


def read_rare(path: Path, identity: str) -> Rare | None:
    """What a file holds, or None where there is none."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in ARRAYS}
            facts = json.loads(metadata["facts"])
        if metadata.get("identity") != identity:
            raise ValueError("it is of another run")
        status = tuple(Status(each) for each in facts.pop("status"))
        return Rare(**arrays, status=status, **facts)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise RunFolderError(
            f"`resume` must find whole files of this run, got {path}: {error}."
            " Delete it to look for rare failures again."
        ) from error
