"""Learn the worst admissible noise of a classifier, without measuring it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from nppr.budget import Budget
from nppr.classifiers import ModelSpec
from nppr.data import DataSpec
from nppr.fit import FitProgress, FitSettings
from nppr.learned import Fitted, save_fitted
from nppr.run import Settings
from nppr.setup import limited, set_up, stated_budget

__all__ = ["learn"]


def learn(
    model: ModelSpec = "digits-cnn",
    data: DataSpec = "digits",
    *,
    budget: Budget | None = None,
    fit: FitSettings | None = None,
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
) -> list[Fitted]:
    """Fit and choose distributions on the fit and select parts of the data.

    Arguments are those of `assess`, which measures what comes out on the evaluate part:
    `assess(model, data, distributions=learn(model, data))`. With `out` they are written there.
    """
    settings = Settings(
        fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed, quantise=quantise
    )
    loaded = limited(data, settings)
    fit = fit or FitSettings()
    ready = set_up(
        model,
        loaded,
        stated_budget(budget, loaded),
        settings,
        {"fit": fit.as_dict()},
        feature_model=feature_model,
        batch_size=batch_size,
        device=device,
        out=out,
        resume=resume,
        overwrite=overwrite,
    )
    fitted = ready.learner(fit, on_fit).run()
    if ready.folder:
        save_fitted(ready.folder.path / "distributions", fitted)
    return fitted
