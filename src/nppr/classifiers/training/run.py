"""From the name of a network and data to trained weights on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nppr.classifiers.checking import check_classifier
from nppr.classifiers.prepare import usable_device
from nppr.classifiers.training.checkpoint import Checkpoint
from nppr.classifiers.training.examples import Examples, Normalisation, accuracy
from nppr.classifiers.training.loop import Session, optimise
from nppr.classifiers.training.outputs import Outputs
from nppr.classifiers.training.recipes import default_settings, require_known
from nppr.classifiers.training.records import described, log_of, metadata_of
from nppr.classifiers.training.schedule import build_optimiser
from nppr.classifiers.training.settings import TrainSettings
from nppr.classifiers.training.standing import EpochResult, Standing, TrainProgress
from nppr.classifiers.weights import Weights
from nppr.classifiers.wrap import Classifier
from nppr.classifiers.zoo import ZOO
from nppr.data import Data
from nppr.draws import key
from nppr.errors import SpecError

__all__ = ["Trained", "train"]


@dataclass(frozen=True)
class Trained:
    """A finished training: its files, its epochs, and the accuracy on the evaluate part."""

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
    """Train a network of the zoo on the fit and select parts; write its weights and a log.

    `out` is the weights file. Until the training is finished, a checkpoint lies beside it, written
    after every epoch and on Ctrl-C. `resume` continues from there (from the beginning where there
    is none): on the same machine the files come out byte for byte as without an interruption.
    `overwrite` starts again instead.
    """
    require_known(architecture)
    examples = Examples.of(data)
    shape = examples.shape
    settings = settings or default_settings(architecture, shape)
    _check_crop(settings, shape)
    module = _fresh(architecture, data.classes, shape[0], settings).to(usable_device(device))
    outputs = Outputs(Path(out))
    choices = described(architecture, data, examples, settings)
    _check_network(architecture, module, examples, data.classes)
    held = outputs.begin(choices, resume=resume, overwrite=overwrite)
    normalisation = held.normalisation if held else examples.normalisation()
    standing = held.standing if held else Standing()
    optimiser = build_optimiser(module.parameters(), settings)
    if held:
        held.restore(module, optimiser)
    classifier = _classifier(architecture, module, normalisation)

    def save() -> None:
        outputs.save(Checkpoint.of(choices, normalisation, standing, module, optimiser))

    session = Session(classifier, module, optimiser, examples, settings, standing, save, progress)
    with _threads(held.threads if held else settings.threads or torch.get_num_threads()):
        optimise(session)
        reached = accuracy(classifier, data)
    log = log_of(choices, examples, data, normalisation, standing, reached)
    metadata = metadata_of(architecture, data, settings, normalisation)
    outputs.finish(Weights(dict(module.state_dict()), metadata), log)
    return Trained(outputs.weights, outputs.log, tuple(standing.finished), reached)


def _fresh(architecture: str, classes: int, channels: int, settings: TrainSettings) -> nn.Module:
    """The network with first weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(settings.seed, "train/weights", 0, 0))
        return ZOO[architecture].build(classes, channels, settings.stem)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Run with this number of threads, then with the caller's again."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_crop(settings: TrainSettings, shape: tuple[int, ...]) -> None:
    side = min(shape[-2:])
    if settings.crop >= side:
        raise SpecError(
            f"`crop` must be less than the side of the images, {side}, got {settings.crop}."
        )


def _check_network(architecture: str, module: nn.Module, examples: Examples, classes: int) -> None:
    """Find out on one image whether the network takes images of this size."""
    classifier = Classifier(module, name=architecture)
    x, _ = examples.batch(np.arange(1))
    check_classifier(classifier, x.to(classifier.device), classes)


def _classifier(architecture: str, module: nn.Module, normalisation: Normalisation) -> Classifier:
    return Classifier(module, mean=normalisation.mean, std=normalisation.std, name=architecture)
