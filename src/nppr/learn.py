"""Learn the worst admissible noise of a classifier, without measuring it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from pydantic_core import to_jsonable_python

from nppr.budget import Budget
from nppr.classifiers import ModelSpec
from nppr.data.load import DataSpec
from nppr.run import Settings
from nppr.search import SearchSettings
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import LearnedNoise, save_learned
from nppr.setup import limited, set_up, stated_budget


def learn(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    *,
    budget: Budget | None = None,
    fit: SearchSettings | None = None,
    feature_model: ModelSpec | None = None,
    fit_inputs: int | None = None,
    select_inputs: int | None = None,
    seed: int = 0,
    quantise: bool = False,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_fit: Callable[[FitProgress], None] | None = None,
) -> list[LearnedNoise]:
    """Fit and choose distributions on the fit and select splits of the data.

    Arguments are those of `assess`, which measures what comes out on the evaluate split:
    `assess(model, data, distributions=learn(model, data))`. With `out` they are written there.
    """
    settings = Settings(
        fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed, quantise=quantise
    )
    loaded = limited(data, settings)
    fit = fit or SearchSettings()
    ready = set_up(
        model,
        loaded,
        stated_budget(budget, loaded),
        settings,
        {"fit": to_jsonable_python(fit)},
        feature_model=feature_model,
        batch_size=batch_size,
        device=device,
        out=out,
        resume=resume,
        overwrite=overwrite,
    )
    learned = ready.learner(fit, on_fit).run()
    if ready.folder:
        save_learned(ready.folder.path / "distributions", learned)
    return learned
