"""The loop that trains a network, step by step, from wherever it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.budget import perturbed
from nppr.classifiers.classifier import Classifier, frozen, is_out_of_memory
from nppr.classifiers.training.training_examples import EpochPlan, Examples, steps_per_epoch
from nppr.classifiers.training.training_files import Standing
from nppr.classifiers.training.training_settings import Adversary, Optimiser, TrainSettings
from nppr.draws import DrawBlock, key
from nppr.errors import ClassifierError, SpecError
from nppr.interrupts import held_back
from nppr.types import IntArray


@dataclass(frozen=True)
class TrainProgress:
    """After a step: where the training is, and the loss and accuracy of the epoch so far."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class TrainingLoop:
    """A training under way; `save` keeps its state, `progress` is called after every step."""

    classifier: Classifier
    module: nn.Module
    optimiser: torch.optim.Optimizer
    examples: Examples
    settings: TrainSettings
    standing: Standing
    save: Callable[[], None]
    progress: Callable[[TrainProgress], None] | None = None

    def run(self) -> None:
        """Train to the end of the last epoch; save after every epoch and when interrupted.

        PyTorch's own random numbers (dropout) are seeded in every step, and those of the caller are
        as they were afterwards.
        """
        standing = self.standing
        with torch.random.fork_rng(devices=[]), held_back() as interrupt:
            self.module.train()
            while standing.epoch <= self.settings.epochs:
                plan = EpochPlan.draw(self.settings, len(self.examples), standing.epoch)
                for positions in plan.batches[standing.step :]:
                    self._step(plan, positions)
                    try:
                        self._report()
                        interrupt.raise_if_asked()
                    except KeyboardInterrupt:
                        self._require_finite()
                        self.save()
                        raise
                self._require_finite()
                standing.end_epoch()
                self.save()
                interrupt.raise_if_asked()
            self.module.eval()

    def _step(self, plan: EpochPlan, positions: IntArray) -> None:
        """One update of the weights."""
        x, y = self.examples.batch(positions)
        device = self.classifier.device
        x, y = plan.augmented(x, positions).to(device), y.to(device)
        try:
            loss, right = self._update(x, y, positions)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise SpecError(
                f"`batch-size` must fit into memory, got {self.settings.batch_size}."
                " Try half of it."
            ) from error
        self.standing.add_step(loss, right, len(x))

    def _update(self, x: Tensor, y: Tensor, positions: IntArray) -> tuple[float, int]:
        """Perturb if so set, then step along the gradient; mean loss and correct answers."""
        settings, epoch, step = self.settings, self.standing.epoch, self.standing.step
        torch.manual_seed(key(settings.seed, "train/network", step, epoch))
        if settings.adversary is not None:
            draws = start_draws(settings.seed, epoch, positions, x)
            x = adversarial(self.classifier, x, y, settings.adversary, draws)
        per_epoch = steps_per_epoch(settings, len(self.examples))
        set_rate(
            self.optimiser, settings, (epoch - 1) * per_epoch + step, settings.epochs * per_epoch
        )
        logits = self._forward(x)
        loss = F.cross_entropy(logits, y, label_smoothing=settings.label_smoothing)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._diverged(f"a loss of {value}")
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
        if self.progress is None:
            return
        now, steps = self.standing.result, steps_per_epoch(self.settings, len(self.examples))
        self.progress(
            TrainProgress(
                now.epoch, self.settings.epochs, self.standing.step, steps, now.loss, now.accuracy
            )
        )

    def _require_finite(self) -> None:
        """Raise before a broken network takes the place of the last good checkpoint."""
        for name, tensor in self.module.state_dict().items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise self._diverged(f"NaN or Inf in {name!r}")

    def _diverged(self, what: str) -> SpecError:
        return SpecError(
            f"`learning-rate` must keep the training finite, got {what} in epoch"
            f" {self.standing.epoch} after {self.standing.step} steps, with"
            f" {self.settings.learning_rate:g}. Start again with a smaller one and --overwrite;"
            " the last good checkpoint is kept."
        )


def adversarial(
    classifier: Classifier, x: Tensor, y: Tensor, adversary: Adversary, draws: DrawBlock
) -> Tensor:
    """`argmax CE(h(x + delta), y)` over the budget, by projected gradient ascent, `(B, C, H, W)`.

    The start is uniform in the ball. Every step goes along the norm's steepest direction, then back
    into the ball and to where `x + delta` is an image. The attack sees the network in eval mode, so
    that it fools the network as it will be used and leaves the running statistics of batch
    normalisation alone; the weights are then updated in train mode.

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


def start_draws(seed: int, epoch: int, positions: IntArray, x: Tensor) -> DrawBlock:
    """The random numbers of a batch: of (seed, epoch, position of the image) only."""
    return DrawBlock(seed, "train", tuple(positions.tolist()), epoch, 1, x.device, capacity=1)


def build_optimiser(
    parameters: Iterable[nn.Parameter], settings: TrainSettings
) -> torch.optim.Optimizer:
    """The optimiser of the settings."""
    rate, decay = settings.learning_rate, settings.weight_decay
    match settings.optimiser:
        case Optimiser.SGD:
            return torch.optim.SGD(
                parameters, lr=rate, momentum=settings.momentum, weight_decay=decay
            )
        case Optimiser.ADAM:
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)


def relative_rate(done: float, warm_up: float) -> float:
    """Share of the learning rate when a share `done` of the training is over.

    Linear from 0 to 1 over the warm-up, then a cosine down to 0.

    >>> [relative_rate(done, warm_up=0.2) for done in (0.0, 0.1, 0.2, 1.0)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


def set_rate(
    optimiser: torch.optim.Optimizer, settings: TrainSettings, step: int, steps: int
) -> None:
    """Set the learning rate of step 0..steps-1, taken at its middle: neither end is wasted."""
    share = relative_rate((step + 0.5) / steps, settings.warm_up)
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * share
