"""`nppr train`."""

from __future__ import annotations

import time
from pathlib import Path

from nppr import console
from nppr.cli.app import command
from nppr.options import DEVICE_OPTION, STEM_OPTION, DataOptions, Panel, TrainOptions, option
from nppr.progress import training_bar


class TrainCommandOptions(TrainOptions, DataOptions):
    """Options of `nppr train`."""

    inputs: int | None = option(
        None,
        "At most this many inputs of the evaluate split, which gives the accuracy.",
        Panel.ADVANCED,
    )

    model: str = option(..., "Name of a network of the zoo.", flag="MODEL")
    stem: str | None = STEM_OPTION
    device: str | None = DEVICE_OPTION
    out: Path | None = option(None, "Weights file. Default: MODEL.safetensors.")
    resume: bool = option(False, "Continue an interrupted training.")
    overwrite: bool = option(
        False, "Replace files that exist; start again where a training is unfinished."
    )
    quiet: bool = option(False, "Print nothing but the path of the weights.")


@command("""
    nppr train digits-cnn --out digits.safetensors
        train the demo's network from scratch
    nppr train resnet18 --data cifar-10-batches-py --method pgd --eps 8/255
        adversarial training
    nppr train digits-cnn --method gaussian --sigma 0.25 --out noisy.safetensors
        training with Gaussian noise, for nppr bracket
""")
def train(options: TrainCommandOptions) -> None:
    """Train a network of the zoo from scratch and write its weights as safetensors.

    It is trained on the fit and select splits of the data; the evaluate split is kept for measuring.
    Options that are left out have defaults that suit the network. A log is written beside the weights.
    """
    from nppr.assessment.load import load_images, train_settings
    from nppr.classifiers.training import Outputs, image_shape, require_known
    from nppr.classifiers.training import train as train_network
    from nppr.run_settings import RunSettings

    model, quiet = options.model, options.quiet
    require_known(model)
    path = options.out or Path(f"{model}.safetensors")
    settings = RunSettings(
        inputs=options.inputs,
        fit_inputs=options.fit_inputs,
        select_inputs=options.select_inputs,
        seed=options.seed,
    )
    images = load_images(options, settings)
    for each in () if options.quiet else images.notes:
        console.note(each)
    training = TrainOptions(**{name: getattr(options, name) for name in TrainOptions.model_fields})
    chosen = train_settings(model, image_shape(images), training, stem=options.stem)
    begun = path.exists() or Outputs(path).checkpoint.exists()
    if options.resume and not quiet and not begun:
        console.note(
            f"nothing to resume, there is no {Outputs(path).checkpoint}: starting from the beginning"
        )
    start = time.perf_counter()
    with training_bar(quiet=quiet) as progress:
        trained = train_network(
            model, images, path, chosen, device=options.device,
            resume=options.resume, overwrite=options.overwrite, progress=progress,
        )  # fmt: skip
    if not quiet:
        console.note(
            f"{100 * trained.accuracy:.2f} % of the evaluate split classified correctly,"
            f" {time.perf_counter() - start:.1f} s, log in {trained.log}"
        )
    console.print_line(str(path))
