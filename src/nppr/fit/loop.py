"""The only loop that fits a distribution (Algorithm 1 of the paper).

Mixture, up-sampler and frozen classifier go through a step together, a few micro-batches at a time.
The classifier gives the gradient in the perturbation only, and the perturbation hands it on to the
distribution, so memory does not grow with the step. The numbers of an input depend on (seed, index,
epoch) only.

Several ranks divide what the classifier has to do and exchange its gradients in the perturbation.
All of them then take the same step, which is the step of one process bit for bit: nothing is added up
in another order.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nppr.budget import Budget
from nppr.classifiers import FrozenClassifier, Prepared, is_out_of_memory
from nppr.distributed import LostRank, gathered, joined, span, together, world
from nppr.distributions import Context, Distribution
from nppr.draws import DrawBlock, key
from nppr.errors import FitError
from nppr.fit.inputs import Found
from nppr.fit.losses import LOSSES, regulariser
from nppr.fit.settings import Recipe
from nppr.interrupts import Interrupt, held_back
from nppr.types import Fit, IntArray

__all__ = ["FitProgress", "Fitting", "History", "Step", "fit", "optimiser"]

logger = logging.getLogger(__name__)

NUMBERS_AT_ONCE = 2**22
"""Numbers in the perturbations that are made together, unless a micro-batch has more."""

SLOWER = ("log_scales", "raw_scale")
SLOWER_BY = 0.1
"""Scales act as exponents, so they move by a tenth of the rate."""


@dataclass(frozen=True)
class FitProgress:
    """Where a fit stands: steps of this stage, the loss and PR under the noise of the last step."""

    stage: str
    step: int
    steps: int
    loss: float
    pr: float


@dataclass
class History:
    """Loss and running PR of every step."""

    loss: list[float]
    pr: list[float]


@dataclass(frozen=True, eq=False)
class Fitting:
    """What is fitted, on what, and how: `steps` steps of the recipe."""

    stage: str
    classifier: Prepared
    inputs: Found[Fit]
    budget: Budget
    recipe: Recipe
    steps: int
    seed: int
    quantise: bool = False


@dataclass(eq=False)
class Step:
    """How far a fit is: the distribution, its optimiser, and what happened so far.

    `snapshot` is the distribution after half of the steps: it may do better on other inputs.
    """

    distribution: Distribution
    optimiser: torch.optim.Adam
    history: History
    snapshot: Distribution | None = None

    @property
    def number(self) -> int:
        """Steps that are done."""
        return len(self.history.loss)


def optimiser(distribution: Distribution, recipe: Recipe) -> torch.optim.Adam:
    """Adam with a rate for free parameters, one for scales and one for layers that see a context."""
    groups: dict[float, list[nn.Parameter]] = {}
    free = ("mixture.logits", "mixture.means", "mixture.raw")
    for name, parameter in distribution.named_parameters():
        if name.endswith(SLOWER):
            rate = SLOWER_BY * recipe.rate
        else:
            rate = recipe.rate if name in free else recipe.head_rate
        groups.setdefault(rate, []).append(parameter)
    return torch.optim.Adam(
        [{"params": parameters, "lr": rate, "full": rate} for rate, parameters in groups.items()],
        fused=True,
    )


def fit(
    fitting: Fitting,
    state: Step,
    *,
    progress: Callable[[FitProgress], None] | None = None,
    save: Callable[[Step, bool], None] | None = None,
) -> Step:
    """Take the steps that are left; `save` is called after each, and at once when it ends early."""
    state.distribution.to(fitting.classifier.device).train()
    with held_back() as interrupt, fitting.classifier.frozen(quantise=fitting.quantise) as models:
        while state.number < fitting.steps:
            try:
                fitting = _take(fitting, state, models.fast, interrupt)
            except (FitError, LostRank):  # the step was not taken
                if save:
                    save(state, True)
                raise
            if state.number == fitting.steps // 2:
                state.snapshot = copy.deepcopy(state.distribution).eval()
            _pause(fitting, state, interrupt, progress, save)
    state.distribution.eval()
    return state


def _pause(
    fitting: Fitting,
    state: Step,
    interrupt: Interrupt,
    progress: Callable[[FitProgress], None] | None,
    save: Callable[[Step, bool], None] | None,
) -> None:
    """Between two steps: tell how it goes, keep the state, and stop here if that is wanted."""
    try:
        if progress and world().is_first:
            progress(_progress(fitting, state))
        interrupt.raise_if_asked()
    except KeyboardInterrupt:
        if save:
            save(state, True)
        raise
    if save:
        save(state, False)


def _take(fitting: Fitting, state: Step, model: FrozenClassifier, interrupt: Interrupt) -> Fitting:
    """One step; where memory runs out, with half the micro-batch, on all ranks."""
    number, steps, recipe = state.number, fitting.steps, fitting.recipe
    while True:
        state.optimiser.zero_grad(set_to_none=True)
        try:
            with together():
                loss, pr = _gradients(fitting, state.distribution, model, number)
                interrupt.asked = any(gathered(interrupt.asked))  # all stop after the same step
            break
        except (RuntimeError, MemoryError) as error:
            smaller = fitting.classifier.micro_batch // 2
            if not is_out_of_memory(error) or not smaller:
                raise
            logger.warning("out of memory: going on with a micro-batch of %d", smaller)
            fitting = replace(fitting, classifier=replace(fitting.classifier, micro_batch=smaller))
    norm = float(nn.utils.clip_grad_norm_(state.distribution.parameters(), recipe.clip or math.inf))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FitError(
            f"the fit of {fitting.stage} gave {'a loss' if math.isfinite(norm) else 'gradients'} that"
            f" are not numbers at step {number + 1} of {steps}. The last good state is kept. Check the"
            " classifier's logits, or lower the learning rate."
        )
    for group in state.optimiser.param_groups:
        group["lr"] = group["full"] * recipe.rate_at(number, steps)
    state.optimiser.step()
    if recipe.bound is not None:
        with torch.no_grad():
            state.distribution.mixture.means.clamp_(-recipe.bound, recipe.bound)
    state.history.loss.append(loss)
    state.history.pr.append(pr)
    return fitting


def _gradients(
    fitting: Fitting, distribution: Distribution, model: FrozenClassifier, number: int
) -> tuple[float, float]:
    """Add up the gradients of a step; its mean loss and the share of right answers."""
    recipe, classifier = fitting.recipe, fitting.classifier
    tau = recipe.tau_at(number, fitting.steps)
    heat = recipe.heat_at(number, fitting.steps)
    loss_of = LOSSES[recipe.loss]
    images = recipe.inputs * recipe.draws
    loss, right = 0.0, 0
    for epoch, positions in _positions(fitting, number, math.prod(distribution.shape)):
        x, y = fitting.inputs.batch(positions, classifier.device)
        context = Context(y, fitting.inputs.seen(positions, classifier.device))
        draws = _draws(fitting, positions, epoch)
        delta, given = distribution.relaxed(context, draws, fitting.budget, tau, heat)
        labels = y.repeat_interleave(recipe.draws)
        moved = (x.unsqueeze(1) + delta.detach()).flatten(0, 1)
        clipped = moved.clamp(0, 1)
        inside = moved == clipped
        gradient, logits = _in_pieces(
            model, clipped, labels, classifier.micro_batch,
            lambda z, y: loss_of(z, y, recipe.kappa) / images,
        )  # fmt: skip
        loss += float(loss_of(logits, labels, recipe.kappa).sum())
        right += int((logits.argmax(1) == labels).sum())
        ends, slopes = [delta], [gradient.mul_(inside).view_as(delta)]
        if recipe.entropy or recipe.diversity:
            ends.append(regulariser(given, recipe.entropy, recipe.diversity))
            slopes.append(torch.full_like(ends[1], len(positions) / recipe.inputs))
        torch.autograd.backward(ends, slopes)
    return loss / images, right / images


def _in_pieces(
    model: FrozenClassifier,
    x: Tensor,
    y: Tensor,
    size: int,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Gradients and logits, in equal pieces of at most a micro-batch, each on one rank.

    There are 2, 4, 8, ... of them, so that two ranks have the same to do, and more where there is more.
    """
    pieces = min(len(x), max(2, 2 ** (-(-len(x) // size) - 1).bit_length()))
    images, labels = x.tensor_split(pieces), y.tensor_split(pieces)
    found = [
        model.gradient(lambda z, y=labels[piece]: loss_of(z, y), images[piece])  # type: ignore[misc]
        for piece in span(pieces)
    ]
    gradients, logits = ([each[part] for each in found] for part in (0, 1))
    return joined(gradients, x.device), joined(logits, x.device)


def _positions(fitting: Fitting, number: int, pixels: int) -> Iterator[tuple[int, IntArray]]:
    """The inputs of a step in parts, each with the epoch it belongs to.

    All inputs come once an epoch in an order of their own; a step may end one and begin the next. A
    part is at most 1, 2, 4, 8, ... micro-batches.
    """
    inputs, recipe = len(fitting.inputs), fitting.recipe
    micro_batch = fitting.classifier.micro_batch
    whole = max(1, NUMBERS_AT_ONCE // pixels // micro_batch)
    size = max(1, micro_batch * 2 ** (whole.bit_length() - 1) // recipe.draws)
    first, last = number * recipe.inputs, (number + 1) * recipe.inputs
    for epoch in range(first // inputs, (last - 1) // inputs + 1):
        seed = key(fitting.seed, "fit/order", 0, epoch) & 0xFFFFFFFF
        order = np.random.default_rng(seed).permutation(inputs)
        chosen = order[max(0, first - epoch * inputs) : last - epoch * inputs]
        for start in range(0, len(chosen), size):
            yield epoch, chosen[start : start + size]


def _draws(fitting: Fitting, positions: IntArray, epoch: int) -> DrawBlock:
    return DrawBlock(
        seed=fitting.seed,
        split=f"{fitting.inputs.part.kind.name}/{fitting.stage}",
        indices=tuple(fitting.inputs.part.indices[positions].tolist()),
        block=epoch,
        size=fitting.recipe.draws,
        device=fitting.classifier.device,
        capacity=fitting.recipe.draws,
    )


def _progress(fitting: Fitting, state: Step) -> FitProgress:
    return FitProgress(
        stage=fitting.stage,
        step=state.number,
        steps=fitting.steps,
        loss=state.history.loss[-1],
        pr=state.history.pr[-1],
    )
