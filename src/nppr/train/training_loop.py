"""Train a network of the zoo and write its weights and a log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.core.budget import perturbed
from nppr.core.random_draws import DrawBlock, derive_seed
from nppr.core.tally import IntArray
from nppr.data import Data
from nppr.errors import ClassifierError, SpecError
from nppr.models.classifier import Classifier, check_classifier, frozen, is_out_of_memory
from nppr.models.prepare_classifier import usable_device
from nppr.models.zoo import ZOO
from nppr.system.process import hold_back_interrupts
from nppr.system.records import add_prefix, pack_optimiser
from nppr.system.worker_pools import use_threads
from nppr.train.training_examples import (
    EpochPlan,
    Examples,
    image_shape,
    measure_accuracy,
    steps_per_epoch,
)
from nppr.train.training_files import Checkpoint, EpochResult, Outputs, TrainingStanding
from nppr.train.training_settings import (
    Adversary,
    Optimiser,
    TrainSettings,
    Value,
    default_training,
    require_known,
)

LOG_FORMAT = 1


@dataclass(frozen=True)
class TrainProgress:
    """State after a step, with the loss and accuracy of the epoch so far."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float

    @property
    def shown(self) -> tuple[str, int, int, str]:
        """The name, the steps done, the total, and a remark."""
        done, total = (self.epoch - 1) * self.steps + self.step, self.epochs * self.steps
        accuracy = f"loss {self.loss:.3f}, {100 * self.accuracy:.1f} % correct"
        return "training", done, total, f"epoch {self.epoch}/{self.epochs}, {accuracy}"


@dataclass(frozen=True)
class TrainedNetwork:
    """A finished training: its files, its epochs and its accuracy on the evaluate split."""

    weights: Path
    log: Path
    epochs: tuple[EpochResult, ...]
    accuracy: float


def train_network(
    architecture: str,
    data: Data,
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    device: str | torch.device | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[TrainProgress], None] | None = None,
) -> TrainedNetwork:
    """Train a network of the zoo on the fit and select splits; write its weights `out` and a log.

    Until the training has ended, there is a checkpoint beside `out`, written after every epoch and on
    Ctrl-C. `resume` continues from it, starts if there is none, and does nothing if the training has
    ended. On the same machine, a resumed training writes the same bytes as an uninterrupted one.
    `overwrite` starts again.
    """
    require_known(architecture)
    examples = Examples(data)
    shape = image_shape(data)
    settings = settings or default_training(architecture, shape)
    place = usable_device(device)
    module = _build_untrained(architecture, data.classes, shape, settings).to(place)
    choices: dict[str, Value] = {
        "model": architecture,
        "data": data.name,
        "classes": data.classes,
        "images": examples.fingerprint(),
        **settings.describe(),
    }
    first = examples.batch(np.arange(1))[0].to(place)
    check_classifier(Classifier(module, name=architecture), first, data.classes)
    outputs = Outputs(Path(out))
    with outputs.locked():
        if resume and (done := outputs.read_finished(choices)) is not None:
            return TrainedNetwork(outputs.weights, outputs.log, *done)
        held = outputs.begin(choices, resume=resume, overwrite=overwrite)
        mean, std = (held.mean, held.std) if held else examples.normalisation()
        classifier = Classifier(module, mean=mean, std=std, name=architecture)
        training = _Training(classifier, module, examples, settings, choices, outputs, progress)
        if held:
            training.standing = held.standing
            held.restore(module, training.optimiser)
        threads = held.threads if held else settings.threads or torch.get_num_threads()
        with use_threads(threads):
            training.run()
            reached = measure_accuracy(classifier, data)
        outputs.finish(module.state_dict(), training.metadata(), training.log(reached))
    return TrainedNetwork(outputs.weights, outputs.log, tuple(training.standing.finished), reached)


def _build_untrained(
    architecture: str, classes: int, shape: tuple[int, ...], settings: TrainSettings
) -> nn.Module:
    """Build the network with first weights that depend on the seed only."""
    side = min(shape[-2:])
    if settings.crop >= side:
        raise SpecError(
            f"`crop` must be less than the side of the images, {side}, got {settings.crop}."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "train/weights", 0, 0))
        return ZOO[architecture].build(classes, shape[0], settings.stem)


@dataclass(eq=False)
class _Training:
    """A running training. `choices` determine its weights; `progress` is called after every step."""

    classifier: Classifier
    module: nn.Module
    examples: Examples
    settings: TrainSettings
    choices: dict[str, Value]
    outputs: Outputs
    progress: Callable[[TrainProgress], None] | None

    def __post_init__(self) -> None:
        self.standing = TrainingStanding()
        self.optimiser = build_optimiser(self.module.parameters(), self.settings)
        self.steps = steps_per_epoch(self.settings, len(self.examples))

    def run(self) -> None:
        """Train to the end of the last epoch; save after every epoch and when interrupted.

        Every step seeds PyTorch's random numbers (dropout). The caller's random state is restored.
        """
        with torch.random.fork_rng(devices=[]), hold_back_interrupts() as interrupt:
            self.module.train()
            while self.standing.epoch <= self.settings.epochs:
                plan = EpochPlan.draw(self.settings, len(self.examples), self.standing.epoch)
                for positions in plan.batches[self.standing.step :]:
                    self._step(plan, positions)
                    try:
                        self._report()
                        interrupt.raise_if_asked()
                    except KeyboardInterrupt:
                        self._save(self.standing)
                        raise
                after = self.standing.next_epoch()
                self._save(after)
                self.standing = after
                interrupt.raise_if_asked()
            self.module.eval()

    def _step(self, plan: EpochPlan, positions: IntArray) -> None:
        """Update the weights once."""
        x, y = self.examples.batch(positions)
        device = self.classifier.device
        x, y = plan.augment(x, positions).to(device), y.to(device)
        try:
            loss, correct = self._update(x, y, positions)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise SpecError(
                f"`batch-size` must fit into memory, got {self.settings.batch_size}."
                " Try half of it."
            ) from error
        self.standing.add_step(loss, correct, len(x))

    def _update(self, x: Tensor, y: Tensor, positions: IntArray) -> tuple[float, int]:
        """Perturb the images if set and take a step; return mean loss and number of correct answers."""
        settings, epoch, step = self.settings, self.standing.epoch, self.standing.step
        torch.manual_seed(derive_seed(settings.seed, "train/network", step, epoch))
        draws = draws_of_batch(settings.seed, epoch, positions, x)
        if settings.adversary is not None:
            x = attack_images(self.classifier, x, y, settings.adversary, draws)
        elif settings.sigma is not None:
            x = add_noise(x, settings.sigma, draws)
        done, steps = (epoch - 1) * self.steps + step, settings.epochs * self.steps
        set_rate(self.optimiser, settings, done, steps)
        logits = self._forward(x)
        loss = F.cross_entropy(logits, y, label_smoothing=settings.label_smoothing)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._divergence(f"a loss of {value}")
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return value, int((logits.detach().argmax(1) == y).sum())

    def _forward(self, x: Tensor) -> Tensor:
        try:
            return self.classifier.forward(x)
        except ClassifierError as error:
            if not isinstance(error.__cause__, ValueError):  # batch normalisation of a single value
                raise
            raise ClassifierError(
                f"`batch-size` must be larger for {self.classifier.name!r},"
                f" got a batch of {len(x)}: {error.__cause__}"
            ) from error

    def _report(self) -> None:
        if self.progress is not None:
            now, epochs, step = self.standing.result, self.settings.epochs, self.standing.step
            self.progress(
                TrainProgress(now.epoch, epochs, step, self.steps, now.loss, now.accuracy)
            )

    def _save(self, standing: TrainingStanding) -> None:
        """Replace the checkpoint, unless the network has broken weights."""
        tensors = self.module.state_dict()
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise self._divergence(f"NaN or infinite weights in {name!r}")
        memory = add_prefix("optimiser/", pack_optimiser(self.optimiser))
        Checkpoint(
            settings=self.choices,
            threads=torch.get_num_threads(),
            mean=self.classifier.mean or (),
            std=self.classifier.std or (),
            standing=standing,
            tensors=add_prefix("model/", tensors) | memory,
        ).save(self.outputs.checkpoint)

    def _divergence(self, what: str) -> SpecError:
        return SpecError(
            f"`learning-rate` must keep the training finite, got {what} in epoch"
            f" {self.standing.epoch} after {self.standing.step} steps, with"
            f" {self.settings.learning_rate:g}. Start again with a smaller one and --overwrite;"
            " the last good checkpoint is kept."
        )

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the weights file."""
        classifier, settings, data = self.classifier, self.settings, self.examples.data
        optional = {
            "stem": settings.stem,
            "budget": None if settings.adversary is None else str(settings.adversary.budget),
            "sigma": None if settings.sigma is None else repr(settings.sigma),
        }
        return {
            "architecture": classifier.name,
            "classes": str(data.classes),
            "mean": ",".join(map(repr, classifier.mean or ())),
            "std": ",".join(map(repr, classifier.std or ())),
            "data": data.name,
            "epochs": str(settings.epochs),
            "method": settings.method.value,
            "seed": str(settings.seed),
        } | {name: value for name, value in optional.items() if value is not None}

    def log(self, reached: float) -> dict[str, Any]:
        """Return the log; it contains no times and no machine, so equal trainings give equal logs."""
        return {
            "format": LOG_FORMAT,
            "settings": self.choices,
            "normalisation": {"mean": self.classifier.mean, "std": self.classifier.std},
            "train": {
                "inputs": len(self.examples),
                "epochs": [asdict(result) for result in self.standing.finished],
            },
            "evaluate": {"inputs": len(self.examples.data.evaluate), "accuracy": reached},
        }


def attack_images(
    classifier: Classifier, x: Tensor, y: Tensor, adversary: Adversary, draws: DrawBlock
) -> Tensor:
    """Return `argmax CE(h(x + delta), y)` over the budget by projected gradient ascent, `(B, C, H, W)`.

    The start is uniform in the ball. Every step follows the norm's steepest direction, then projects
    onto the ball and onto the images. The network is in eval mode, as it will be used, which leaves the
    running statistics of batch normalisation alone.

    Reference: A. Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, 2018.
    """
    budget = adversary.budget
    delta = budget.uniform(draws, "pgd-training", tuple(x.shape[1:]))[:, 0]
    point = perturbed(x, delta)
    with frozen(classifier) as model:
        for _ in range(adversary.steps):
            gradient, _ = model.gradient(
                lambda logits: F.cross_entropy(logits, y, reduction="none"), point
            )
            ascent = adversary.step * budget.radius * budget.norm.steepest(gradient)
            point = perturbed(x, budget.clip(point - x + ascent))
    return point


def add_noise(x: Tensor, sigma: float, draws: DrawBlock) -> Tensor:
    """Return `x + N(0, sigma^2)` per pixel, clipped to [0, 1] as in measuring, `(B, C, H, W)`."""
    noise = draws.normal("gaussian-training", tuple(x.shape[1:]))[:, 0]
    return perturbed(x, noise.mul_(sigma))


def draws_of_batch(seed: int, epoch: int, positions: IntArray, x: Tensor) -> DrawBlock:
    """Return the random numbers of a batch, which depend on (seed, epoch, image position) only."""
    return DrawBlock(seed, "train", tuple(positions.tolist()), epoch, 1, x.device, capacity=1)


def build_optimiser(
    parameters: Iterable[nn.Parameter], settings: TrainSettings
) -> torch.optim.Optimizer:
    """Return the optimiser of the settings."""
    rate, decay = settings.learning_rate, settings.weight_decay
    match settings.optimiser:
        case Optimiser.SGD:
            return torch.optim.SGD(
                parameters, lr=rate, momentum=settings.momentum, weight_decay=decay
            )
        case Optimiser.ADAM:
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)


def relative_rate(done: float, warm_up: float) -> float:
    """Return the fraction of the learning rate after a fraction `done` of the training.

    It rises linearly from 0 to 1 over the warm-up, then falls as a cosine to 0.

    >>> [relative_rate(done, warm_up=0.2) for done in (0.0, 0.1, 0.2, 1.0)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


def set_rate(
    optimiser: torch.optim.Optimizer, settings: TrainSettings, step: int, steps: int
) -> None:
    """Set the learning rate of step 0..steps-1 to the schedule at the middle of the step."""
    fraction = relative_rate((step + 0.5) / steps, settings.warm_up)
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * fraction
