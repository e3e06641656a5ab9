"""`nppr train`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nppr import console
from nppr.cli import options
from nppr.errors import BudgetError, SpecError, unknown

if TYPE_CHECKING:
    from nppr.classifiers.training import Adversary, TrainSettings
    from nppr.data import Data

__all__ = ["train"]

METHODS = ("pgd", "standard")
OPTIMISERS = ("adam", "sgd")

Network = Annotated[str, typer.Argument(help="Name of a network of the zoo.")]
MethodName = Annotated[
    str, typer.Option("--method", help="standard, or pgd: adversarial training by PGD.")
]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training images.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per step.")]
OptimiserName = Annotated[
    str | None,
    typer.Option("--optimiser", help="sgd, or adam (with decoupled weight decay, AdamW)."),
]
LearningRate = Annotated[float | None, typer.Option(help="Largest learning rate.")]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay.")]
Momentum = Annotated[float | None, typer.Option(help="Momentum of sgd.")]
WarmUp = Annotated[
    float | None,
    typer.Option(help="Share of the steps in which the learning rate rises; a cosine follows."),
]
LabelSmoothing = Annotated[
    float | None, typer.Option(help="Weight spread over all classes instead of the label.")
]
Crop = Annotated[
    int | None, typer.Option(help="Shift images by up to this many pixels, border repeated.")
]
Flip = Annotated[
    bool | None,
    typer.Option("--flip/--no-flip", help="Mirror images at random. Default: colour images only."),
]
Norm = Annotated[str | None, typer.Option(help="Norm of the budget of pgd: linf (default) or l2.")]
Eps = Annotated[str | None, typer.Option(help="Radius of the budget of pgd, such as 8/255.")]
AttackSteps = Annotated[int | None, typer.Option(help="Steps of the attack. Default: 10.")]
AttackStep = Annotated[
    float | None, typer.Option(help="Size of a step relative to the radius. Default: 0.25.")
]
Seed = Annotated[
    int, typer.Option(help="Seed of subsets, first weights, order, crops, flips, attacks.")
]
Out = Annotated[Path | None, typer.Option(help="Weights file. Default: MODEL.safetensors.")]
Overwrite = Annotated[
    bool, typer.Option(help="Replace files that exist, start again where a training is unfinished.")
]
Resume = Annotated[bool, typer.Option(help="Continue an interrupted training.")]


def train(
    model: Network,
    data: options.Data = "digits",
    split: options.Split = None,
    resize: options.Resize = None,
    inputs: options.Inputs = None,
    fit_inputs: options.FitInputs = None,
    select_inputs: options.SelectInputs = None,
    method: MethodName = "standard",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    optimiser: OptimiserName = None,
    learning_rate: LearningRate = None,
    weight_decay: WeightDecay = None,
    momentum: Momentum = None,
    warm_up: WarmUp = None,
    label_smoothing: LabelSmoothing = None,
    crop: Crop = None,
    flip: Flip = None,
    norm: Norm = None,
    eps: Eps = None,
    attack_steps: AttackSteps = None,
    attack_step: AttackStep = None,
    stem: options.Stem = None,
    seed: Seed = 0,
    device: options.Device = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network of the zoo from scratch and write its weights as safetensors.

    It is trained on the fit and select parts of the data; the evaluate part is kept for measuring.
    Options that are left out have defaults that suit the network. A log lies beside the weights.
    """
    _check_names(method, optimiser)
    attack: dict[str, Any] = {
        "norm": norm,
        "eps": eps,
        "attack-steps": attack_steps,
        "attack-step": attack_step,
    }
    given: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "momentum": momentum,
        "warm_up": warm_up,
        "label_smoothing": label_smoothing,
        "crop": crop,
        "flip": flip,
        "stem": stem,
        "seed": seed,
    }

    from nppr.classifiers.training import require_known
    from nppr.classifiers.training import train as train_network
    from nppr.data import load_data

    require_known(model)
    path = out or Path(f"{model}.safetensors")
    adversary = _adversary(method, attack)
    images = load_data(data, split=split, resize=resize).limit(
        inputs=inputs, fit_inputs=fit_inputs, select_inputs=select_inputs, seed=seed
    )
    settings = _settings(model, images, optimiser, given, adversary)
    if resume and not quiet:
        _note_fresh_start(path)
    start = time.perf_counter()
    with console.training_bar(quiet=quiet) as progress:
        trained = train_network(
            model, images, path, settings,
            device=device, resume=resume, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if not quiet:
        _note(
            f"{100 * trained.accuracy:.2f} % right on the evaluate part,"
            f" {time.perf_counter() - start:.1f} s, log in {trained.log}"
        )
    console.out.print(str(path), markup=False, soft_wrap=True)


def _check_names(method: str, optimiser: str | None) -> None:
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if optimiser is not None and optimiser not in OPTIMISERS:
        raise unknown("optimiser", optimiser, OPTIMISERS)


def _adversary(method: str, attack: dict[str, Any]) -> Adversary | None:
    """The attack of --method pgd; its options mean nothing without it."""
    if method == "standard":
        for name, value in attack.items():
            if value is not None:
                raise SpecError(
                    f"`{name}` must be left out with --method standard, got {value!r}."
                    " Add --method pgd to train against attacks."
                )
        return None
    if attack["eps"] is None:
        raise BudgetError("`eps` must be given with --method pgd. Example: --eps 8/255")

    from nppr.budget import Budget
    from nppr.classifiers.training import Adversary

    adversary = Adversary(Budget.parse(attack["norm"] or "linf", attack["eps"]))
    chosen = {"steps": attack["attack-steps"], "step": attack["attack-step"]}
    return replace(adversary, **_without_none(chosen))


def _settings(
    model: str,
    images: Data,
    optimiser: str | None,
    given: dict[str, Any],
    adversary: Adversary | None,
) -> TrainSettings:
    """The defaults of the network for these images, with what was given in their place."""
    from nppr.classifiers.training import Optimiser, default_settings, image_shape

    chosen = None if optimiser is None else Optimiser(optimiser)
    defaults = default_settings(model, image_shape(images), chosen)
    if given["momentum"] is not None and defaults.optimiser is not Optimiser.SGD:
        raise SpecError(
            f"`momentum` must be left out with the optimiser {defaults.optimiser.value}."
            " Add --optimiser sgd to use it."
        )
    return replace(defaults, adversary=adversary, **_without_none(given))


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _note_fresh_start(path: Path) -> None:
    from nppr.classifiers.training import Outputs

    checkpoint = Outputs(path).checkpoint
    if not checkpoint.exists():
        _note(f"nothing to resume, there is no {checkpoint}: starting from the beginning")


def _note(text: str) -> None:
    console.err.print(text, markup=False, soft_wrap=True)
