"""A node that fits one family, warm-started at the families inside it that were fitted before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from nppr.budget import Budget
from nppr.data import Part
from nppr.distributions import Family, Temperatures
from nppr.errors import DataError
from nppr.fit import FitSettings, Outcome, Recipe, Search
from nppr.fit.inputs import IN_MEMORY
from nppr.fit.inputs import Found as Inputs
from nppr.fit.stages import Finished, StageFiles
from nppr.fit.walk import Stage
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.work_clean import classifier_for, known_features, known_right
from nppr.types import Fit, Select, Split

__all__ = ["finished_stage", "fit"]

S = TypeVar("S", bound=Split)


class _Search(Search):
    """A search whose inputs were looked at before, by the clean node."""

    def use(self, fit: Inputs[Fit], select: Inputs[Select]) -> None:
        """Take these inputs instead of finding them."""
        self._fit_inputs, self._select_inputs = fit, select

    def find_inputs(self) -> None:
        """They are found."""

    def described(self, finished: Finished) -> Outcome:
        """What was found, with its diagnostics."""
        return self._outcome([finished], 0)


def fit(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fit the family, choose among what was found and its parents; resumes from its last state."""
    known = node.determined_by
    stage, settings = _stage(known)
    folder = cache.folder(node.hash)
    search = _Search(
        settings=settings,
        classifier=classifier_for(node, cache),
        data=loaded_data(node.how["data"]),
        budget=Budget.parse(*known["budget"]),
        seed=known["seed"],
        quantise=known["quantise"],
        folder=folder,
        identity=node.hash,
    )
    search.use(
        _inputs(node, cache, search.data.fit, keep_images=True),
        _inputs(node, cache, search.data.select),
    )
    parents = [
        finished_stage(cache, hash_, search.classifier.device)
        for role, hash_ in sorted(node.needs.items())
        if role.startswith("parent-")
    ]
    finished = search.complete(stage, parents)
    outcome = search.described(finished)
    last = max(1, len(finished.history.loss) // 10)
    results = {
        "selected": finished.name,
        "select_value": finished.value,
        "select_values": finished.values,
        "fit_calls": finished.fit_calls,
        "forward_calls": finished.forward_calls,
        "fit_inputs": len(search.data.fit),
        "step_calls": settings.step_calls,
        "draws": settings.recipe.draws,
        "loss": _mean(finished.history.loss[-last:]),
        "pr": _mean(finished.history.pr[-last:]),
        "diagnostics": outcome.diagnostics,
    }
    (made,) = folder.glob("*.done.safetensors")
    return results, (made.name,)


def finished_stage(cache: Cache, hash_: str, device: torch.device) -> Finished:
    """The finished stage of a fit node."""
    folder = cache.folder(hash_)
    (made,) = folder.glob("*.done.safetensors")
    found = StageFiles(folder, made.name.removesuffix(".done.safetensors"), hash_).load(device)
    assert found is not None
    return found


def _stage(known: dict[str, Any]) -> tuple[Stage, FitSettings]:
    """The stage and settings that the hash of the node was made of."""
    heat = Temperatures(**known["recipe"]["heat"])
    recipe = Recipe(**{**known["recipe"], "heat": heat})
    family = Family.from_dict(known["family"])
    stage = Stage(known["stage"], family, (), recipe, known["steps"], last=False)
    settings = FitSettings(
        family=family,
        floors=(family.floor,),
        calls=max(1, known["steps"]) * recipe.inputs * recipe.draws,
        recipe=recipe,
        walks=known["walks"],
    )
    return stage, settings


def _inputs(node: Node, cache: Cache, part: Part[S], *, keep_images: bool = False) -> Inputs[S]:
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
    return Inputs(kept, features, images, 0)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
