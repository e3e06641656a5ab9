"""`nppr fit`."""

from __future__ import annotations

from nppr import console
from nppr.cli.groups import (
    BudgetOptions,
    DataOptions,
    FitOptions,
    ModelOptions,
    RunOptions,
    grouped,
    run_folder,
)

__all__ = ["fit"]


@grouped
def fit(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    fit: FitOptions,
    run: RunOptions,
) -> None:
    """Learn the worst admissible noise of a classifier, on other inputs than those it is measured on.

    Writes each distribution to the run folder, as distributions/NAME.safetensors. Measure them with
    nppr evaluate.
    """
    folder = run_folder(run, model, data, "fit", budget, fit)

    from nppr.learn import learn

    loaded = data.load(model.classes)
    classifier, featurer = model.load(loaded)
    limit = data.fit_inputs or len(loaded.fit)
    with console.progress_bars(quiet=run.quiet) as (_, on_fit):
        fitted = learn(
            classifier,
            loaded,
            budget=budget.parse(),
            fit=fit.settings(min(limit, len(loaded.fit))),
            feature_model=featurer,
            fit_inputs=data.fit_inputs,
            select_inputs=data.select_inputs,
            seed=run.seed,
            quantise=run.quantise,
            batch_size=run.batch_size,
            device=run.device,
            out=folder,
            resume=run.resume,
            overwrite=run.overwrite,
            on_fit=on_fit,
        )
    if not run.quiet:
        console.show_fitted(fitted)
    console.out.print(str(folder / "distributions"), markup=False, soft_wrap=True)
