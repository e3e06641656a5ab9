"""The loop that trains a network, step by step, from wherever it stands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.classifiers.training.adversarial import adversarial, start_draws
from nppr.classifiers.training.augment import EpochPlan, steps_per_epoch
from nppr.classifiers.training.examples import Examples
from nppr.classifiers.training.schedule import set_rate
from nppr.classifiers.training.settings import TrainSettings
from nppr.classifiers.training.standing import Standing, TrainProgress
from nppr.classifiers.wrap import Classifier, is_out_of_memory
from nppr.draws import key
from nppr.errors import ClassifierError, SpecError
from nppr.interrupts import Interrupt, held_back
from nppr.types import IntArray

__all__ = ["Session", "optimise"]


@dataclass(frozen=True, eq=False)
class Session:
    """A training under way; `save` keeps the state it is in, `progress` is told after every step."""

    classifier: Classifier
    module: nn.Module
    optimiser: torch.optim.Optimizer
    examples: Examples
    settings: TrainSettings
    standing: Standing
    save: Callable[[], None]
    progress: Callable[[TrainProgress], None] | None = None

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return steps_per_epoch(self.settings, len(self.examples))


def optimise(session: Session) -> None:
    """Train to the end of the last epoch; save after every epoch and when interrupted.

    PyTorch's own random numbers (dropout) are set anew in every step, and those of the caller are
    as they were afterwards.
    """
    standing, settings = session.standing, session.settings
    with torch.random.fork_rng(devices=[]), held_back() as interrupt:
        session.module.train()
        while standing.epoch <= settings.epochs:
            plan = EpochPlan.draw(settings, len(session.examples), standing.epoch)
            for positions in plan.batches[standing.step :]:
                _step(session, plan, positions)
                _pause(session, interrupt)
            _require_finite(session)
            standing.end_epoch()
            session.save()
            interrupt.raise_if_asked()
        session.module.eval()


def _pause(session: Session, interrupt: Interrupt) -> None:
    """Between two steps: tell how it goes, and stop here if that is wanted."""
    try:
        if session.progress is not None:
            session.progress(_progress(session))
        interrupt.raise_if_asked()
    except KeyboardInterrupt:
        _require_finite(session)
        session.save()
        raise


def _step(session: Session, plan: EpochPlan, positions: IntArray) -> None:
    """One update of the weights."""
    x, y = session.examples.batch(positions)
    device = session.classifier.device
    x, y = plan.augmented(x, positions).to(device), y.to(device)
    try:
        loss, right = _update(session, x, y, positions)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise SpecError(
            f"`batch-size` must fit into memory, got {session.settings.batch_size}. Try half of it."
        ) from error
    session.standing.add_step(loss, right, len(x))


def _update(session: Session, x: Tensor, y: Tensor, positions: IntArray) -> tuple[float, int]:
    """Perturb if so set, then step along the gradient; mean loss and number of right answers."""
    settings, standing = session.settings, session.standing
    torch.manual_seed(key(settings.seed, "train/network", standing.step, standing.epoch))
    if settings.adversary is not None:
        draws = start_draws(settings.seed, standing.epoch, positions, x)
        x = adversarial(session.classifier, x, y, settings.adversary, draws)
    done = (standing.epoch - 1) * session.steps + standing.step
    set_rate(session.optimiser, settings, done, settings.epochs * session.steps)
    logits = _forward(session, x)
    loss = F.cross_entropy(logits, y, label_smoothing=settings.label_smoothing)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(session, f"a loss of {value}")
    session.optimiser.zero_grad()
    loss.backward()
    session.optimiser.step()
    return value, int((logits.detach().argmax(1) == y).sum())


def _forward(session: Session, x: Tensor) -> Tensor:
    try:
        return session.classifier.forward(x)
    except ClassifierError as error:
        if not isinstance(error.__cause__, ValueError):  # batch normalisation of a single value
            raise
        raise ClassifierError(
            f"`batch-size` must be larger for {session.classifier.name!r},"
            f" got a batch of {len(x)}: {error.__cause__}"
        ) from error


def _require_finite(session: Session) -> None:
    """Raise before a broken network takes the place of the last good checkpoint."""
    for name, tensor in session.module.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise _diverged(session, f"NaN or Inf in {name!r}")


def _diverged(session: Session, what: str) -> SpecError:
    settings, standing = session.settings, session.standing
    return SpecError(
        f"`learning-rate` must keep the training finite, got {what} in epoch {standing.epoch} after"
        f" {standing.step} steps, with {settings.learning_rate:g}. Start again with a smaller one and"
        " --overwrite; the last good checkpoint is kept."
    )


def _progress(session: Session) -> TrainProgress:
    now = session.standing.result
    return TrainProgress(
        epoch=now.epoch,
        epochs=session.settings.epochs,
        step=session.standing.step,
        steps=session.steps,
        loss=now.loss,
        accuracy=now.accuracy,
    )
