"""`nppr train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from nppr import console
from nppr.cli.option_flags import grouped
from nppr.options import DataOptions, TrainOptions

Network = Annotated[str, typer.Argument(help="Name of a network of the zoo.")]
Stem = Annotated[
    str | None,
    typer.Option(
        "--stem", help="imagenet or small, for resnet18, resnet50, wide_resnet50_2, vgg16."
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Such as cpu or cuda:0. Default: the accelerator, if any."),
]
Out = Annotated[Path | None, typer.Option(help="Weights file. Default: MODEL.safetensors.")]
Overwrite = Annotated[
    bool, typer.Option(help="Replace files that exist, start again where a training is unfinished.")
]
Resume = Annotated[bool, typer.Option(help="Continue an interrupted training.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the weights.")]


@grouped
def train(
    model: Network,
    data: DataOptions,
    training: TrainOptions,
    stem: Stem = None,
    device: Device = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train a network of the zoo from scratch and write its weights as safetensors.

    It is trained on the fit and select splits of the data; the evaluate split is kept for measuring.
    Options that are left out have defaults that suit the network. A log lies beside the weights.
    """
    from nppr.assessment.load import load_images, train_settings
    from nppr.assessment.run_settings import RunSettings
    from nppr.classifiers.training import Outputs, image_shape, require_known
    from nppr.classifiers.training import train as train_network

    require_known(model)
    path = out or Path(f"{model}.safetensors")
    settings = RunSettings(
        inputs=data.inputs,
        fit_inputs=data.fit_inputs,
        select_inputs=data.select_inputs,
        seed=training.seed,
    )
    images = load_images(data, settings)
    chosen = train_settings(model, image_shape(images), training, stem=stem)
    if resume and not quiet and not Outputs(path).checkpoint.exists():
        console.note(
            f"nothing to resume, there is no {Outputs(path).checkpoint}: starting from the beginning"
        )
    start = time.perf_counter()
    with console.training_bar(quiet=quiet) as progress:
        trained = train_network(
            model, images, path, chosen,
            device=device, resume=resume, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if not quiet:
        console.note(
            f"{100 * trained.accuracy:.2f} % of the evaluate split classified correctly,"
            f" {time.perf_counter() - start:.1f} s, log in {trained.log}"
        )
    console.print_line(str(path))


EXAMPLES = {
    "train": """
  nppr train digits-cnn --out digits.safetensors
      train the demo's network from scratch
  nppr train resnet18 --data cifar-10-batches-py --method pgd --eps 8/255
      adversarial training""",
}
