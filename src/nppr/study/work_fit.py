"""A node that fits one family, warm-started at the families inside it that were fitted before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import TypeAdapter

from nppr.budget import Budget
from nppr.data import Part
from nppr.errors import DataError
from nppr.noise import Family
from nppr.search import Recipe, SearchSettings
from nppr.search.search import FinishedStage, Search, load_finished
from nppr.search.search_settings import Stage
from nppr.search.selection import IN_MEMORY, CleanInputs
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.work_clean import classifier_for, known_features, known_right
from nppr.types import Split

__all__ = ["finished_stage", "fit"]

S = TypeVar("S", bound=Split)


def fit(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fit the family, choose among what was found and its parents; resumes from its last state."""
    known = node.determined_by
    stage, settings = _stage(known)
    folder = cache.folder(node.hash)
    data = loaded_data(node.how["data"])
    search = Search(
        settings=settings,
        classifier=classifier_for(node, cache),
        data=data,
        budget=Budget.parse(*known["budget"]),
        seed=known["seed"],
        quantise=known["quantise"],
        folder=folder,
        identity=node.hash,
        inputs=(
            _inputs(node, cache, data.fit, keep_images=True),
            _inputs(node, cache, data.select),
        ),
    )
    parents = [
        finished_stage(cache, hash_, search.classifier.device)
        for role, hash_ in sorted(node.needs.items())
        if role.startswith("parent-")
    ]
    finished = search.complete(stage, parents)
    record = finished.record
    last = max(1, len(record.loss) // 10)
    results = {
        "selected": record.selected,
        "select_value": finished.select_value,
        "select_values": record.select_values,
        "fit_calls": record.fit_calls,
        "forward_calls": record.forward_calls,
        "fit_inputs": len(data.fit),
        "step_calls": settings.step_calls,
        "draws": settings.recipe.draws,
        "loss": _mean(record.loss[-last:]),
        "pr": _mean(record.running_pr[-last:]),
        "diagnostics": search.diagnose(finished).model_dump(),
    }
    (made,) = folder.glob("*.done.safetensors")
    return results, (made.name,)


def finished_stage(cache: Cache, hash_: str, device: torch.device) -> FinishedStage:
    """The finished stage of a fit node."""
    (made,) = cache.folder(hash_).glob("*.done.safetensors")
    found = load_finished(made, hash_, device)
    assert found is not None
    return found


def _stage(known: dict[str, Any]) -> tuple[Stage, SearchSettings]:
    """The stage and settings that the hash of the node was made of."""
    recipe = TypeAdapter(Recipe).validate_python(known["recipe"])
    family = Family(**known["family"])
    stage = Stage(known["stage"], family, (), recipe, known["steps"], last=False)
    settings = SearchSettings(
        family=family,
        floors=(family.floor,),
        calls=max(1, known["steps"]) * recipe.inputs * recipe.draws,
        recipe=recipe,
        walks=known["walks"],
    )
    return stage, settings


def _inputs(
    node: Node, cache: Cache, part: Part[S], *, keep_images: bool = False
) -> CleanInputs[S]:
    """The inputs of a part that are right without noise, with the features the noise may see."""
    name = part.kind.name
    if not len(part):
        raise DataError(
            f"`data` must have a {name} part to fit NPPR on, got none. Leave `dependencies` out of the"
            " grid, or give data with such a part."
        )
    right, _ = known_right(cache, node.needs["clean"], name)
    keep = np.flatnonzero(right)
    if not len(keep):
        raise DataError(
            f"the {name} part must hold at least one input that is right without noise, got none."
            " Check the classifier, its normalisation and the labels."
        )
    features = torch.empty(len(keep), 0)
    if "features" in node.needs:
        seen = known_features(cache, node.needs["features"], name)
        features = seen[torch.from_numpy(keep)]
    kept = replace(part, indices=part.indices[keep], labels=part.labels[keep])
    images = None
    if keep_images:
        first, _ = kept.batch(np.arange(1))
        if first.nbytes * len(kept) <= IN_MEMORY:
            images, _ = kept.batch(np.arange(len(kept)))
    return CleanInputs(kept, features, images, 0)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
