"""From the name of a network and data to trained weights on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nppr.classifiers.classifier import Classifier, check_classifier
from nppr.classifiers.prepare_classifier import usable_device
from nppr.classifiers.training.training_examples import Examples, accuracy, image_shape
from nppr.classifiers.training.training_files import Checkpoint, EpochResult, Outputs, Standing
from nppr.classifiers.training.training_loop import TrainingLoop, TrainProgress, build_optimiser
from nppr.classifiers.training.training_settings import (
    TrainSettings,
    default_settings,
    require_known,
)
from nppr.classifiers.zoo import ZOO
from nppr.data import Data
from nppr.draws import key
from nppr.errors import SpecError
from nppr.tensor_files import optimiser_tensors

LOG_FORMAT = 1


@dataclass(frozen=True)
class Trained:
    """A finished training: its files, its epochs, and the accuracy on the evaluate split."""

    weights: Path
    log: Path
    epochs: tuple[EpochResult, ...]
    accuracy: float


def train(
    architecture: str,
    data: Data,
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    device: str | torch.device | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[TrainProgress], None] | None = None,
) -> Trained:
    """Train a network of the zoo on the fit and select splits; write its weights and a log.

    `out` is the weights file. Until the training is finished, a checkpoint lies beside it, written
    after every epoch and on Ctrl-C. `resume` continues from there (from the beginning where there
    is none): on the same machine the files come out byte for byte as without an interruption.
    `overwrite` starts again instead.
    """
    require_known(architecture)
    examples = Examples(data)
    shape = image_shape(data)
    settings = settings or default_settings(architecture, shape)
    module = _untrained(architecture, data.classes, shape, settings).to(usable_device(device))
    choices = {
        "model": architecture,
        "data": data.name,
        "classes": data.classes,
        "images": examples.fingerprint(),
        **settings.described(),
    }
    bare = Classifier(module, name=architecture)
    check_classifier(bare, examples.batch(np.arange(1))[0].to(bare.device), data.classes)
    outputs = Outputs(Path(out))
    held = outputs.begin(choices, resume=resume, overwrite=overwrite)
    mean, std = (held.mean, held.std) if held else examples.normalisation()
    standing = held.standing if held else Standing()
    optimiser = build_optimiser(module.parameters(), settings)
    if held:
        held.restore(module, optimiser)
    classifier = Classifier(module, mean=mean, std=std, name=architecture)

    def save() -> None:
        tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
        with outputs.writing():
            Checkpoint(
                settings=choices,
                threads=torch.get_num_threads(),
                mean=mean,
                std=std,
                standing=standing,
                tensors=tensors | optimiser_tensors(optimiser),
            ).save(outputs.checkpoint)

    loop = TrainingLoop(classifier, module, optimiser, examples, settings, standing, save, progress)
    with _threads(held.threads if held else settings.threads or torch.get_num_threads()):
        loop.run()
        reached = accuracy(classifier, data)
    outputs.finish(module.state_dict(), _metadata(loop), _log(loop, choices, reached))
    return Trained(outputs.weights, outputs.log, tuple(standing.finished), reached)


def _untrained(
    architecture: str, classes: int, shape: tuple[int, ...], settings: TrainSettings
) -> nn.Module:
    """The network with first weights that depend on the seed only."""
    side = min(shape[-2:])
    if settings.crop >= side:
        raise SpecError(
            f"`crop` must be less than the side of the images, {side}, got {settings.crop}."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(settings.seed, "train/weights", 0, 0))
        return ZOO[architecture].build(classes, shape[0], settings.stem)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Run with this number of threads, then with the caller's again."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _metadata(loop: TrainingLoop) -> dict[str, str]:
    """The metadata of the weights file."""
    classifier, settings, data = loop.classifier, loop.settings, loop.examples.data
    metadata = {
        "architecture": classifier.name,
        "classes": str(data.classes),
        "mean": ",".join(map(repr, classifier.mean or ())),
        "std": ",".join(map(repr, classifier.std or ())),
        "data": data.name,
        "epochs": str(settings.epochs),
        "method": settings.method.value,
        "seed": str(settings.seed),
    }
    if settings.stem is not None:
        metadata["stem"] = settings.stem
    if settings.adversary is not None:
        metadata["budget"] = str(settings.adversary.budget)
    return metadata


def _log(loop: TrainingLoop, choices: Mapping[str, object], reached: float) -> dict[str, Any]:
    """The log: no clock and no machine in it, so that the same training gives the same log."""
    return {
        "format": LOG_FORMAT,
        "settings": choices,
        "normalisation": {"mean": loop.classifier.mean, "std": loop.classifier.std},
        "train": {
            "inputs": len(loop.examples),
            "epochs": [asdict(result) for result in loop.standing.finished],
        },
        "evaluate": {"inputs": len(loop.examples.data.evaluate), "accuracy": reached},
    }
