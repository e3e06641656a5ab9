"""The options that commands share, each described once, and how their text is read."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated

import typer

from nppr.errors import BudgetError, SpecError, unknown

NORMS = ("linf", "l2")
"""The names in `nppr.budget`, which is not imported here: it would load PyTorch."""

Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="A network of the zoo (digits-cnn, resnet18, resnet20, vgg16, ...), model.pt2,"
        " model.onnx, hf:NAME_OR_FOLDER, timm:NAME, torchvision:NAME, or Python code that makes a"
        " model: pkg.module:callable or path/to/file.py:callable. Python code is run; every"
        " other format runs none.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="safetensors file or PyTorch state dict, or random. Default: those nppr ships.",
    ),
]
Mean = Annotated[
    str | None,
    typer.Option("--mean", help="Normalisation, one number or one per channel: 0.5,0.5,0.5."),
]
Std = Annotated[str | None, typer.Option("--std", help="Normalisation, as --mean.")]
Classes = Annotated[
    int | None,
    typer.Option("--classes", help="Number of classes, where weights or labels do not show it."),
]
Stem = Annotated[
    str | None,
    typer.Option(
        "--stem", help="imagenet or small, for resnet18, resnet50, wide_resnet50_2, vgg16."
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Layer whose output input-dependent noise may see. Default: input of the last linear.",
    ),
]
FeatureModel = Annotated[
    str | None,
    typer.Option("--feature-model", help="Another model to take features from, as --model."),
]
FeatureWeights = Annotated[
    Path | None, typer.Option("--feature-weights", help="Weights of --feature-model.")
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="digits, or a path: CIFAR-10/100 or Tiny ImageNet (folder or archive), parquet, image"
        " folder, idx files, .npz; or hf:NAME.",
    ),
]
Split = Annotated[
    str | None,
    typer.Option("--split", help="Part of the data to evaluate. Default: its test part."),
]
Resize = Annotated[
    int | None, typer.Option("--resize", help="Resize images to this many pixels a side.")
]
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
        " pgd, cw: steps, step (relative to the radius), restarts, random-start; pgd-3, pgd-10,"
        " pgd-20, cw-3, cw-10, cw-20 are presets. autoattack: batch (needs the extra attacks)."
        " universal: epochs, step. weak-adversary: variance, step. stress: q."
        " bound: reference, ratio."
        " salt-and-pepper, motion-blur, brightness, jpeg: severity, constants."
        " all: every one of them. nppr: the worst noise found by a fit, see --dependency to --preset."
        " Default: nppr,gaussian,uniform,laplace,pgd.",
    ),
]
Draws = Annotated[
    int | None,
    typer.Option(
        "--draws",
        help="Perturbations drawn per input. Default: 100; with --precision 16, to begin with.",
    ),
]
Precision = Annotated[
    float | None,
    typer.Option(
        "--precision",
        help="Take more inputs, then more draws, until every PR and NPPR is known to so much to either"
        " side: 0.01 is one point. --inputs is then the most to take.",
    ),
]
Rare = Annotated[
    bool,
    typer.Option(
        "--rare",
        help="Look for failures that are rarer than one in the draws, by multilevel splitting, where"
        " an input had none: for gaussian, uniform, laplace, nppr and bound.",
    ),
]
RareCalls = Annotated[
    int | None,
    typer.Option(
        "--rare-calls", help="Images that --rare may classify in all. Default: 1,000,000."
    ),
]
Radii = Annotated[
    str | None,
    typer.Option(
        "--radii",
        help="Measure the sources at these radii too: 2/255,4/255,16/255. Learned noise is scaled, not"
        " fitted again.",
    ),
]
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
OnlyMerged = Annotated[
    bool,
    typer.Option(
        "--only-merged",
        help="Report AR over all sources together and not of each attack: what is broken already is"
        " not attacked again.",
    ),
]
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
Page = Annotated[
    bool, typer.Option("--page/--no-page", help="Write report.html, the page for readers.")
]
Figures = Annotated[
    str | None,
    typer.Option("--figures", help="Write the figures as files too: svg, png, pdf."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print report.json instead of the table.")]
Dependency = Annotated[
    str,
    typer.Option(
        "--dependency",
        help="The most the noise may depend on: independent, label, input or joint (input and true"
        " label). The search walks up to it.",
    ),
]
Components = Annotated[
    int, typer.Option("--components", help="Components of the mixture, K of the paper.")
]
Covariance = Annotated[
    str | None,
    typer.Option(
        "--covariance",
        help="diag, lowrank:R or full (of each component). Default: diag; full in --preset paper.",
    ),
]
Upsampler = Annotated[
    str | None,
    typer.Option(
        "--upsampler",
        help="Resolution of the noise: none (every pixel), bicubic or trainable (a coarse grid),"
        " multiscale (grids of all sizes). Default: none; bicubic in --preset paper.",
    ),
]
LatentDim = Annotated[
    int | None, typer.Option("--latent-dim", help="Latent dimension of --upsampler trainable.")
]
Grid = Annotated[
    int | None,
    typer.Option(
        "--grid",
        help="Side of the coarse grid of bicubic and trainable."
        " Default: 4, or 7 for images of more than 32 pixels.",
    ),
]
HiddenDim = Annotated[
    int | None,
    typer.Option(
        "--hidden-dim",
        help="Width of the network that sees the features. Default: 128, with --preset paper 256.",
    ),
]
LabelDim = Annotated[int, typer.Option("--label-dim", help="Size of the label embedding.")]
MinStd = Annotated[
    float, typer.Option("--min-std", help="Least latent standard deviation, before the squashing.")
]
Floor = Annotated[
    str | None,
    typer.Option(
        "--floor",
        help="Least randomness rho in [0, 1], one or several: that share of every perturbation is"
        " Uniform noise. 0 is the paper's set. One row each. Default: 0,0.5; 0 in --preset paper.",
    ),
]
Kappa = Annotated[float, typer.Option("--kappa", help="Margin of the loss.")]
LossName = Annotated[str, typer.Option("--loss", help="margin or cross-entropy.")]
FitCalls = Annotated[
    int | None,
    typer.Option(
        "--fit-calls",
        help="Budget of a fit: forward and backward passes of one image, for the whole walk."
        " Default: 92160; 50 epochs in --preset paper.",
    ),
]
FitDraws = Annotated[
    int | None,
    typer.Option(
        "--fit-draws", help="Draws of an input in one step. Default: 1; 32 in --preset paper."
    ),
]
FitSeeds = Annotated[
    int,
    typer.Option("--fit-seeds", help="Repeat the fit; all are reported, the lowest named nppr."),
]
Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        help="nppr, or paper: the paper's recipe like for like, nothing chosen after it.",
    ),
]
Distribution = Annotated[
    Path | None,
    typer.Option(
        "--distribution",
        help="A distribution written by nppr fit, or a folder of them, instead of a fit.",
    ),
]


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
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    if eps is None and norm != "linf":
        raise BudgetError(f"`eps` must be given with --norm {norm}. Example: --eps 0.5")
    return None if eps is None else (norm, eps)


def default_folder(model: str, data: str, settings: object) -> Path:
    """A folder under runs/ that belongs to these settings alone."""
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    names = (Path(name).stem or name for name in (model, data))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(names))
    return Path("runs") / f"{readable}-{digest}"
