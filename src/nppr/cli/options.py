"""The options that commands share, each described once, and how their text is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from nppr.errors import BudgetError, SpecError

Model = Annotated[str, typer.Option("--model", help="Name of a network of the zoo.")]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", help="safetensors file. Default: the weights nppr ships."),
]
Mean = Annotated[
    str | None,
    typer.Option("--mean", help="Normalisation, one number or one per channel: 0.5,0.5,0.5."),
]
Std = Annotated[str | None, typer.Option("--std", help="Normalisation, as --mean.")]
Classes = Annotated[
    int | None, typer.Option("--classes", help="Number of classes, where the weights do not say.")
]
Data = Annotated[str, typer.Option("--data", help="Name of a data set.")]
Norm = Annotated[str, typer.Option("--norm", help="Norm of the budget: linf or l2.")]
Eps = Annotated[
    str | None,
    typer.Option(
        "--eps", help="Radius of the budget, such as 8/255 or 0.03. Default for digits: 0.1 (linf)."
    ),
]
Sources = Annotated[
    str | None,
    typer.Option(
        "--sources",
        help="Sources separated by commas, their options by colons."
        " gaussian, uniform, laplace: scale."
        " pgd: steps, step (relative to the radius), restarts, random-start."
        " Default: gaussian,uniform,laplace,pgd.",
    ),
]
Draws = Annotated[int, typer.Option("--draws", help="Perturbations drawn per input.")]
Inputs = Annotated[
    int | None,
    typer.Option(
        "--inputs",
        help="Evaluate at most this many inputs: stratified by class, before misclassified ones"
        " are set aside.",
    ),
]
FitInputs = Annotated[
    int | None, typer.Option("--fit-inputs", help="As --inputs, of the fit part.")
]
SelectInputs = Annotated[
    int | None, typer.Option("--select-inputs", help="As --inputs, of the select part.")
]
Confidence = Annotated[float, typer.Option("--confidence", help="Confidence of the intervals.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of subsets, draws and resampling.")]
Quantise = Annotated[bool, typer.Option("--quantise", help="Round perturbed inputs to 8 bits.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Micro-batch. Default: found by a short search.")
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Such as cpu or cuda:0. Default: the accelerator, if any."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Run folder. Default: one under runs/ for these settings."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted run of the same settings.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what the run folder holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print report.json instead of the table.")]


def numbers(argument: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SpecError(
            f"`{argument}` must be numbers separated by commas, got {text!r}. Example: 0.5,0.5,0.5"
        ) from None


def budget_text(norm: str, eps: str | None) -> tuple[str, str] | None:
    """Norm and radius, or None where neither was given."""
    if eps is None and norm != "linf":
        raise BudgetError(f"`eps` must be given with --norm {norm}. Example: --eps 0.5")
    return None if eps is None else (norm, eps)


def default_folder(name: str, settings: Iterable[object]) -> Path:
    """A folder under runs/ that belongs to these settings alone."""
    digest = hashlib.sha256(repr(tuple(settings)).encode()).hexdigest()[:8]
    return Path("runs") / f"{name}-{digest}"
