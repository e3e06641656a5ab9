"""`nppr train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from nppr import console
from nppr.cli import options

__all__ = ["train"]


def train(
    model: Annotated[str, typer.Argument(help="Name of a network of the zoo.")],
    data: options.Data = "digits",
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, order and shifts.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Weights file. Default: MODEL.safetensors.")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Train a network of the zoo from scratch and write its weights as safetensors.

    It is trained on the fit and select parts of the data; the evaluate part is kept for measuring.
    """
    path = out or Path(f"{model}.safetensors")

    from nppr.classifiers.train import TrainSettings
    from nppr.classifiers.train import train as train_network
    from nppr.data import load_data

    start = time.perf_counter()
    with console.training_bar(quiet=quiet) as progress:
        accuracy = train_network(
            model, load_data(data), path, TrainSettings(epochs=epochs, seed=seed), progress
        )
    if not quiet:
        console.err.print(
            f"{100 * accuracy:.2f} % right on the evaluate part,"
            f" {time.perf_counter() - start:.1f} s"
        )
    console.out.print(str(path), markup=False, soft_wrap=True)
