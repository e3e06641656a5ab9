"""A node that measures one source on the evaluate part."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from nppr.budget import Budget
from nppr.checkpoint import FileStore
from nppr.data import Data
from nppr.measure import measure
from nppr.report.rows import rows_of
from nppr.sources import Learned, Universal, parse_sources
from nppr.study.axes import LEARNED
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.work_clean import classifier_for, known_features, known_right
from nppr.study.work_fit import finished_stage
from nppr.tensor_files import write_tensors
from nppr.types import Evaluate, FloatArray, Metric, PerturbationSource, Tally

__all__ = ["measured", "rates_of"]

TALLY = "tally.safetensors"
BLOCKS = "blocks.safetensors"
NO_BUDGET = Budget.linf(1.0)
"""For corruptions, which ignore it."""


def measured(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Measure a source; finished blocks are kept, so that an interrupted measurement goes on."""
    known = node.determined_by
    data, classifier = loaded_data(node.how["data"]), classifier_for(node, cache)
    budget = Budget.parse(*known["budget"]) if known["budget"] else NO_BUDGET
    part = data.evaluate
    right, losses = known_right(cache, node.needs["clean"], part.kind.name)
    source = _source(node, cache, data, budget)
    folder = cache.folder(node.hash)
    tally = measure(
        source,
        classifier,
        part,
        draws=known["draws"],
        seed=known["seed"],
        clean_correct=right,
        quantise=known["quantise"],
        store=FileStore(folder / BLOCKS, identity=node.hash),
    )
    tensors = {"right": torch.from_numpy(tally.right), "clean": torch.from_numpy(right)}
    write_tensors(folder / TALLY, tensors, {"draws": str(tally.draws)})
    clean = Tally(
        kind=Evaluate,
        indices=part.indices,
        labels=part.labels,
        clean_correct=right,
        right=right.astype(np.int64),
        draws=1,
        calls=0,
        micro_batch=1,
        sums=losses,
    )
    rows = rows_of(source, tally, clean, known["confidence"], known["seed"])
    kept = [row.model_dump(mode="json") for row in rows if row.metric is not Metric.PROB_ACC]
    return {"rows": kept, "calls": tally.calls, "draws": tally.draws}, (TALLY,)


def rates_of(cache: Cache, hash_: str) -> FloatArray:
    """Share of right draws of the inputs that are right without noise, `(N,)`."""
    with safe_open(cache.folder(hash_) / TALLY, framework="np") as file:
        right, clean = file.get_tensor("right"), file.get_tensor("clean")
        draws = int(file.metadata()["draws"])
    rates: FloatArray = (right / draws)[clean]
    return rates


def _source(node: Node, cache: Cache, data: Data, budget: Budget) -> PerturbationSource:
    classifier = classifier_for(node, cache)
    if node.determined_by["source"] != LEARNED:
        (source,) = parse_sources(node.how["text"], budget)
        if isinstance(source, Universal):
            return source.on(
                classifier.reference,
                data.fit,
                seed=node.determined_by["seed"],
                device=classifier.device,
            )
        return source
    found = finished_stage(cache, node.needs["fit"], classifier.device)
    known = None
    if found.selected.features:
        seen = known_features(cache, node.needs["features"], "evaluate")
        known = dict(zip(data.evaluate.indices.tolist(), seen.unbind(), strict=True))
    return Learned(budget, found.selected, known=known)
