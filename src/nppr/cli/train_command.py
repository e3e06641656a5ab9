"""`nppr train`."""

from __future__ import annotations

import time
from pathlib import Path

from nppr.cli import console
from nppr.cli.commands import TrainCommandOptions
from nppr.run.progress import progress_bars
from nppr.run.resolve import choose_train_settings, resolve_data
from nppr.train import Outputs, image_shape, require_known, train_network


def execute_train(options: TrainCommandOptions) -> None:
    """Run `nppr train`."""
    model, run, quiet = options.network, options.run, options.quiet
    require_known(model)
    path = run.out or Path(f"{model}.safetensors")
    images = resolve_data(options.data.data, options.measure, reading=options.data)
    for each in () if quiet else images.notes:
        console.note(each)
    training = options.training.with_(seed=options.measure.seed)
    chosen = choose_train_settings(model, image_shape(images), training, stem=options.model.stem)
    begun = path.exists() or Outputs(path).checkpoint.exists()
    if run.resume and not quiet and not begun:
        console.note(
            f"nothing to resume, there is no {Outputs(path).checkpoint}: starting from the beginning"
        )
    start = time.perf_counter()
    with progress_bars(quiet=quiet) as progress:
        trained = train_network(
            model, images, path, chosen, device=run.device,
            resume=run.resume, overwrite=run.overwrite, progress=progress,
        )  # fmt: skip
    if not quiet:
        console.note(
            f"{100 * trained.accuracy:.2f} % of the evaluate split classified correctly,"
            f" {time.perf_counter() - start:.1f} s, log in {trained.log}"
        )
    console.print_line(str(path))
