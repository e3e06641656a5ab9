"""What every command does before it computes: load, check, describe, prepare, open the run folder."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppr.budget import Budget
from nppr.classifiers import (
    FORMS,
    Classifier,
    ModelSpec,
    Prepared,
    check_classifier,
    frozen,
    load_classifier,
    prepare,
)
from nppr.data import Data, load_data
from nppr.data.load import DataSpec
from nppr.distributed import first, gathered, require_same, world
from nppr.distributions import Dependency
from nppr.errors import BudgetError, ClassifierError
from nppr.fit import FitProgress, FitSettings
from nppr.learned import Learner
from nppr.measure import probe
from nppr.run import Facts, Settings
from nppr.run_folder import RunFolder

__all__ = ["Setup", "limited", "set_up", "stated_budget"]


FIT_MICRO_BATCH = 64
FIT_NUMBERS = 2**22
"""Numbers in the images of a micro-batch of a fit, at most."""


@dataclass(frozen=True, eq=False)
class Setup:
    """A classifier, data and a run folder, ready for work."""

    data: Data
    budget: Budget
    classifier: Prepared
    feature_model: Classifier | None
    facts: Facts
    settings: Settings
    folder: RunFolder | None

    def learner(self, fit: FitSettings, progress: Callable[[FitProgress], None] | None) -> Learner:
        """The search for the worst noise of this classifier.

        It rounds the same way in every run: form and micro-batch are not the fastest by the clock.
        Noise that cannot see features, because the model shows none, may see the label only.
        """
        pixels = math.prod(self.data.shape)
        fixed = _agreed(
            prepare(
                self.classifier.reference,
                probe(self.data.evaluate),
                classes=self.data.classes,
                device=self.classifier.device,
                micro_batch=max(1, min(FIT_MICRO_BATCH, FIT_NUMBERS // pixels)),
                form=FORMS,
            )
        )
        if self.blind(fit):
            fit = replace(fit, family=fit.family.with_(dependency=Dependency.LABEL))
        return Learner(
            settings=fit,
            classifier=fixed,
            data=self.data,
            budget=self.budget,
            described=self.facts.classifier,
            seed=self.settings.seed,
            feature_model=self.feature_model,
            quantise=self.settings.quantise,
            folder=self.folder.path / "fit" if self.folder else None,
            identity=self.folder.identity if self.folder else "",
            progress=progress,
        )

    def blind(self, fit: FitSettings | None) -> bool:
        """Whether joint noise is asked for and the model shows no features."""
        joint = fit is not None and fit.family.dependency is Dependency.JOINT
        return joint and self.facts.classifier["features"] is None


def set_up(
    model: ModelSpec,
    data: Data,
    budget: Budget,
    settings: Settings,
    work: Mapping[str, Any],
    *,
    feature_model: ModelSpec | None = None,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Setup:
    """Make everything ready; `work` says what will be done, for the report and the run's identity."""
    examples = probe(data.evaluate)
    classifier = load_classifier(model, data=data)
    featurer = None if feature_model is None else load_classifier(feature_model, data=data)
    check_classifier(classifier, examples[:2], data.classes)
    facts = Facts(
        classifier=_describe_classifier(classifier, featurer, data),
        data=_describe_data(data),
        budget={"norm": budget.norm.name, "radius": budget.radius, "text": budget.radius_text},
        settings={**work, **settings.as_dict()},
        seed=settings.seed,
    )
    _require_same_ranks(facts, data)
    division = first(lambda: RunFolder.division(out)) if resume and out is not None else {}
    threads = int(division.get("threads", gathered(torch.get_num_threads())[0]))
    if threads != torch.get_num_threads():  # it would round a fit otherwise
        torch.set_num_threads(threads)
    if batch_size is not None:
        division = {**division, "micro_batch": batch_size}
    ready = _prepared(classifier, data, device, division)
    folder = None
    if out is not None:
        identity = {**facts.identity(), "device": ready.device.type}
        folder = first(lambda: _opened(out, identity, ready, resume=resume, overwrite=overwrite))
        if not resume:
            folder.clear_rank()
    return Setup(data, budget, ready, featurer, facts, settings, folder)


def _prepared(
    classifier: Classifier,
    data: Data,
    device: str | torch.device | None,
    division: Mapping[str, Any],
) -> Prepared:
    """The classifier in the form and micro-batch of the division, else those that are fastest.

    Of several ranks the first searches, alone, and the others follow it.
    """
    micro_batch, form = division.get("micro_batch"), division.get("form")
    prepared = partial(
        prepare, classifier, probe(data.evaluate), classes=data.classes, device=device
    )
    if world().size == 1:
        return prepared(micro_batch=micro_batch, form=form)
    found: list[Prepared] = []

    def search() -> tuple[int, tuple[str, ...]]:
        found.append(prepared(micro_batch=micro_batch, form=form))
        return found[0].micro_batch, found[0].form

    size, kept = first(search)
    ready = found[0] if found else prepared(micro_batch=size, form=kept)
    require_same({"device": ready.device.type})
    return _agreed(ready)


def _agreed(ready: Prepared) -> Prepared:
    """With the smallest micro-batch of all ranks: memory may be short on one of them."""
    return replace(ready, micro_batch=min(gathered(ready.micro_batch)))


def _opened(
    out: str | Path, identity: Mapping[str, Any], ready: Prepared, *, resume: bool, overwrite: bool
) -> RunFolder:
    folder = RunFolder.open(out, identity, resume=resume, overwrite=overwrite)
    folder.record_division(
        {
            "micro_batch": ready.micro_batch,
            "form": list(ready.form),
            "threads": torch.get_num_threads(),
        }
    )
    return folder


def _require_same_ranks(facts: Facts, data: Data) -> None:
    """Raise `InputError` where ranks were given different things or have different versions."""
    if world().size == 1:
        return
    parts = {f"{part.kind.name} part": part.fingerprint() for part in (data.fit, data.select)}
    versions = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    require_same({**facts.identity(), **parts, "version of": versions})


def limited(data: DataSpec, settings: Settings) -> Data:
    """The data, with as many inputs in each part as the settings allow."""
    return load_data(data).limit(
        inputs=settings.inputs,
        fit_inputs=settings.fit_inputs,
        select_inputs=settings.select_inputs,
        seed=settings.seed,
    )


def stated_budget(budget: Budget | None, data: Data) -> Budget:
    """The budget, which must be stated except for the digits demo."""
    if isinstance(budget, Budget) and budget.norm.name == "linf" and budget.radius > 1:
        raise BudgetError(
            f"`radius` must be at most 1 for images in [0, 1], got {budget.radius_text}."
            " Example: 8/255"
        )
    if isinstance(budget, Budget):
        return budget
    if budget is not None:
        raise BudgetError(f"`budget` must be a Budget, got {budget!r}. Example: Budget.linf(0.1)")
    if data.name == "digits":
        return Budget.linf(0.1)
    raise BudgetError(
        "`budget` must be stated for your data: the largest perturbation you admit."
        " Example: --norm linf --eps 8/255"
    )


def _describe_classifier(
    classifier: Classifier, feature_model: Classifier | None, data: Data
) -> dict[str, Any]:
    return {
        "name": classifier.name,
        "weights": classifier.weights,
        "mean": classifier.mean,
        "std": classifier.std,
        "fingerprint": classifier.fingerprint() or _answers(classifier, data),
        "features": _describe_features(classifier, feature_model, data),
    }


def _answers(classifier: Classifier, data: Data) -> str:
    """A hash of a plain callable's answers: two that differ are told apart, as far as they show."""
    with frozen(classifier) as model, torch.no_grad():
        answers = model.logits(probe(data.evaluate).clone()).argmax(1)
    return "answers " + hashlib.sha256(answers.cpu().numpy().tobytes()).hexdigest()


def _describe_features(
    classifier: Classifier, feature_model: Classifier | None, data: Data
) -> dict[str, Any] | None:
    """Which model and layer the features come from, and how many there are; None without any."""
    model = classifier if feature_model is None else feature_model
    try:
        with frozen(model) as seen, torch.no_grad():
            number = seen.features(probe(data.evaluate)[:2]).shape[1]
    except ClassifierError:
        if feature_model is None and classifier.features is None:
            return None
        raise
    return {
        "model": model.name,
        "fingerprint": model.fingerprint(),
        "layer": model.features or "input of the last linear layer",
        "number": number,
    }


def _describe_data(data: Data) -> dict[str, Any]:
    parts = (data.fit, data.select, data.evaluate)
    return {
        "name": data.name,
        "classes": data.classes,
        "class_names": list(data.class_names),
        "shape": list(data.shape),
        "split": data.split,
        "resize": data.resize,
        "inputs": {part.kind.name: len(part) for part in parts},
        "fingerprint": data.evaluate.fingerprint(),
    }
