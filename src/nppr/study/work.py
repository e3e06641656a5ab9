"""Doing one node, in whatever process: the same work gives the same files everywhere."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nppr.errors import NpprError, RunFolderError
from nppr.study.cache import Cache, is_full_disk
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.work_clean import classifier_for, clean, features
from nppr.study.work_fit import fit
from nppr.study.work_measure import measured
from nppr.study.work_train import trained

__all__ = ["DONE", "FAILED", "FULL", "Outcome", "perform"]

logger = logging.getLogger(__name__)

DONE, FAILED, FULL = "done", "failed", "full"
WORK = {"train": trained, "clean": clean, "features": features, "fit": fit, "measure": measured}
ATTEMPTS = "attempts"


@dataclass(frozen=True)
class Outcome:
    """How a node ended; `note` is what a person should know besides."""

    hash: str
    status: str
    results: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    note: str = ""


def perform(node: Node, cache_path: str) -> Outcome:
    """Do a node, or find it done by another process, and say how it went."""
    cache = Cache(Path(cache_path))
    before = torch.get_num_threads()
    torch.set_num_threads(node.how["threads"])
    try:
        with cache.held(node):
            return _held(node, cache)
    except Exception as error:  # one node must not stop the others
        logger.debug("node %s failed", node.label, exc_info=True)
        if is_full_disk(error):
            return Outcome(node.hash, FULL, error=f"no space left on the disk of {cache.path}")
        why = " ".join(str(error).split()) or type(error).__name__
        shown = why if isinstance(error, NpprError) else f"{type(error).__name__}: {why}"
        return Outcome(node.hash, FAILED, error=shown[:500])
    finally:
        torch.set_num_threads(before)


def _held(node: Node, cache: Cache) -> Outcome:
    found = cache.look(node)
    if found.results is not None:
        return Outcome(node.hash, DONE, found.results)
    note = ""
    if found.damage:
        note = f"{node.label}: cached result not used, {found.damage}; computed again"
        cache.clear(node)
    attempts = _attempts(cache.folder(node.hash) / ATTEMPTS)
    cache.log(node, "begin")
    loaded_data(node.how["data"])  # what is loaded once a process is no part of a node's time
    if node.kind != "train":
        classifier_for(node, cache)
    start = time.perf_counter()
    try:
        results, files = WORK[node.kind](node, cache)
    except RunFolderError as error:
        if attempts == 1 or is_full_disk(error):
            raise
        note = f"{node.label}: what an earlier run left was damaged; begun again"
        cache.clear(node)
        results, files = WORK[node.kind](node, cache)
    results = {
        **results,
        "seconds": round(time.perf_counter() - start, 3),
        "attempts": attempts,
    }
    kept = cache.finish(node, results, files)
    cache.log(node, "done")
    return Outcome(node.hash, DONE, kept, note=note)


def _attempts(path: Path) -> int:
    """How often this node was begun, this time included."""
    try:
        before = int(path.read_text())
    except (OSError, ValueError):
        before = 0
    path.write_text(str(before + 1))
    return before + 1
