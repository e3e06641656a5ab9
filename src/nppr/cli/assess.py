"""`nppr assess`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from nppr import console
from nppr.cli import options
from nppr.errors import SpecError

if TYPE_CHECKING:
    from nppr.report import Report

__all__ = ["assess"]


def assess(
    model: options.Model = "digits-cnn",
    weights: options.Weights = None,
    mean: options.Mean = None,
    std: options.Std = None,
    classes: options.Classes = None,
    stem: options.Stem = None,
    features: options.Features = None,
    feature_model: options.FeatureModel = None,
    feature_weights: options.FeatureWeights = None,
    data: options.Data = "digits",
    split: options.Split = None,
    resize: options.Resize = None,
    norm: options.Norm = "linf",
    eps: options.Eps = None,
    sources: options.Sources = None,
    draws: options.Draws = 100,
    inputs: options.Inputs = None,
    fit_inputs: options.FitInputs = None,
    select_inputs: options.SelectInputs = None,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    quantise: options.Quantise = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure a classifier under noise and attacks, on the same inputs and seed.

    Writes report.json and per_input.csv to the run folder and prints the results as a table.
    """
    budget = options.budget_text(norm, eps)
    means, stds = options.numbers("mean", mean), options.numbers("std", std)
    models = (model, weights, mean, std, classes, stem, features, feature_model, feature_weights)
    measured = (data, split, resize, inputs, fit_inputs, select_inputs, seed)
    how = (budget, sources, draws, confidence, quantise)
    folder = out or options.default_folder(model, data, (models, measured, how))

    from nppr.assess import assess as assess_classifier
    from nppr.budget import Budget
    from nppr.classifiers import load_classifier
    from nppr.data import load_data

    loaded = load_data(data, split=split, resize=resize)
    if classes is not None:
        loaded = loaded.with_classes(classes)
    if feature_weights is not None and feature_model is None:
        raise SpecError("`feature-weights` must come with --feature-model, got it alone.")
    layer = None if feature_model else features
    classifier = load_classifier(
        model,
        weights=weights,
        mean=means,
        std=stds,
        classes=classes,
        stem=stem,
        features=layer,
        data=loaded,
    )
    featurer = None
    if feature_model is not None:
        featurer = load_classifier(
            feature_model, weights=feature_weights, features=features, data=loaded
        )
    with console.progress_bars(quiet=quiet) as progress:
        report = assess_classifier(
            classifier,
            loaded,
            budget=Budget.parse(*budget) if budget else None,
            sources=sources,
            feature_model=featurer,
            draws=draws,
            inputs=inputs,
            fit_inputs=fit_inputs,
            select_inputs=select_inputs,
            confidence=confidence,
            seed=seed,
            quantise=quantise,
            batch_size=batch_size,
            device=device,
            out=folder,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            on_plan=None if quiet else console.show_plan,
        )
    _show(report, str(folder / "report.json"), quiet=quiet, as_json=as_json)
    if any(row.error and not row.flags for row in report.results):
        raise typer.Exit(1)


def _show(report: Report, path: str, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(report.to_json())
    elif quiet:
        sys.stdout.write(path + "\n")
    else:
        console.show_report(report, path)
