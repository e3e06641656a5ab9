"""The only loop that fits a distribution (Algorithm 1 of the paper), and its state on disk.

A step takes a few micro-batches at a time through mixture, up-sampler and frozen classifier. The
classifier gives the gradient in the perturbation only, from where it goes on to the distribution, so
memory does not grow with the step. The random numbers of an input depend on (seed, index, epoch) only.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.core import losses
from nppr.core.budget import Budget, perturbed, require_graph
from nppr.core.random_draws import DrawBlock, derive_seed
from nppr.core.tally import Fit, IntArray
from nppr.errors import FitError, RunFolderError, RunStopped
from nppr.models import FrozenClassifier, PreparedClassifier, is_out_of_memory
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Given
from nppr.search.search_settings import SCORE_STD, Recipe
from nppr.search.selection import CleanInputs
from nppr.system.process import hold_back_interrupts
from nppr.system.records import (
    UNREADABLE,
    add_prefix,
    pack_optimiser,
    read_undamaged,
    restore_optimiser,
    shorten_error,
    take_prefix,
    write_record,
)

logger = logging.getLogger(__name__)

SEARCHED_NUMBERS = 2**22
"""Numbers in the perturbations that are made together, unless a micro-batch has more."""

FREE = ("mixture.logits", "mixture.means", "mixture.raw")
SIGNED = "mixture.means"
SLOWER_BY = 0.1
"""Scales act as exponents, so they move by a tenth of the rate."""


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit: steps of this stage, the loss and PR under the noise of the last step."""

    stage: str
    step: int
    steps: int
    loss: float
    pr: float

    @property
    def shown(self) -> tuple[str, int, int, str]:
        """The name, how much is done, of how much, and a remark."""
        note = f"loss {self.loss:.3f}, {100 * self.pr:.1f} % correct"
        return f"fit {self.stage}", self.step, self.steps, note


@dataclass(frozen=True, eq=False)
class Fitting:
    """The inputs of a fit: it takes `steps` steps of the recipe."""

    stage: str
    classifier: PreparedClassifier
    inputs: CleanInputs[Fit]
    budget: Budget
    recipe: Recipe
    steps: int
    seed: int
    pixels: int = 1
    """Numbers in an image, where a perturbation has fewer."""


class SignMomentum(torch.optim.Optimizer):
    """Steps of `lr` along the sign of `m`, with `m <- momentum m + gradient`.

    It moves every coordinate alike, however small its gradient is: where tanh is flat, and for classes
    that few inputs of a step belong to.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "full": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("m", torch.zeros_like(parameter))
                kept.mul_(group["momentum"]).add_(parameter.grad)
                parameter.sub_(kept.sign(), alpha=group["lr"])


def optimisers_of(distribution: Distribution, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Adam with a rate for free parameters, for scales and for heads; signs for free means."""
    found: list[torch.optim.Optimizer] = []
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in distribution.named_parameters():
        if name == SIGNED and recipe.momentum is not None:
            found.append(SignMomentum([parameter], recipe.rate, recipe.momentum))
            continue
        if name.endswith(("log_scales", "raw_scale")):
            rate = SLOWER_BY * recipe.rate
        else:
            rate = recipe.rate if name in FREE else recipe.head_rate
        groups.setdefault(rate, []).append(parameter)
    found.append(
        torch.optim.Adam(
            [{"params": known, "lr": rate, "full": rate} for rate, known in groups.items()],
            fused=True,
        )
    )
    return found


@dataclass(eq=False)
class FitState:
    """The state of a fit: the distribution, its optimisers, and loss and PR of every step."""

    distribution: Distribution
    optimisers: list[torch.optim.Optimizer]
    loss: list[float] = field(default_factory=list)
    pr: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, distribution: Distribution, recipe: Recipe) -> FitState:
        """Before the first step."""
        return cls(distribution, optimisers_of(distribution, recipe))

    @property
    def number(self) -> int:
        """Steps that are done."""
        return len(self.loss)


@dataclass
class StateFile:
    """A file with the state of one fit, written on a timer and when the fit is interrupted.

    It holds no clock times, and a continued fit takes the same steps, so that it ends in the same
    bytes. `identity` is that of the run: the state of another one is not used.
    """

    path: Path
    identity: str
    seconds: float = 10.0
    _saved: float = field(default_factory=time.monotonic, repr=False)

    def save(self, state: FitState, now: bool) -> None:
        """Write the state: at once, or if the last write was more than `seconds` ago."""
        if not now and time.monotonic() - self._saved < self.seconds:
            return
        tensors = add_prefix("distribution/", state.distribution.state_dict())
        for number, optimiser in enumerate(state.optimisers):
            tensors |= add_prefix(f"optimiser-{number}/", pack_optimiser(optimiser))
        record = {"identity": self._whole_identity, "loss": state.loss, "pr": state.pr}
        write_record(self.path, tensors, record)
        self._saved = time.monotonic()

    def restore(self, state: FitState) -> None:
        """Load the file into a fresh state, if there is one of this fit."""
        found = read_stage(self.path)
        if found is None or found[1].get("identity") != self._whole_identity:
            return
        tensors, record = found
        try:
            state.distribution.load_state_dict(take_prefix("distribution/", tensors))
            for number, optimiser in enumerate(state.optimisers):
                restore_optimiser(optimiser, take_prefix(f"optimiser-{number}/", tensors))
            state.loss, state.pr = record["loss"], record["pr"]
        except UNREADABLE as error:
            raise unreadable_stage(self.path, error) from error

    @property
    def _whole_identity(self) -> str:
        return f"{self.identity} {self.path.name}"


def read_stage(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The file of a stage, if there is a sound one."""
    return read_undamaged(path, "that stage is fitted again") if path.exists() else None


def unreadable_stage(path: Path, error: Exception) -> RunFolderError:
    """The error for a file of a stage that cannot be continued from."""
    return RunFolderError(
        f"`resume` must find complete files, got {path}, which cannot be read: {shorten_error(error)}."
        " Delete it to fit that stage again."
    )


def fit(
    fitting: Fitting,
    state: FitState,
    *,
    progress: Callable[[FitProgress], None] | None = None,
    save: Callable[[FitState, bool], None] | None = None,
) -> FitState:
    """Take the steps that are left; `save` is called after each, and at once when it ends early."""
    state.distribution.to(fitting.classifier.device).train()
    with hold_back_interrupts() as interrupt, fitting.classifier.frozen() as models:
        while state.number < fitting.steps:
            try:
                fitting = _take_step(fitting, state, models.fast)
                if progress:
                    latest = (state.number, fitting.steps, state.loss[-1], state.pr[-1])
                    progress(FitProgress(fitting.stage, *latest))
                interrupt.raise_if_asked()
            except (FitError, RunStopped, KeyboardInterrupt):
                if save:  # the step was taken completely or not at all
                    save(state, True)
                raise
            if save:
                save(state, False)
    state.distribution.eval()
    return state


def _take_step(fitting: Fitting, state: FitState, model: FrozenClassifier) -> Fitting:
    """Take one step; it is repeated with half the micro-batch if memory runs out."""
    number, steps, recipe = state.number, fitting.steps, fitting.recipe
    while True:
        state.distribution.zero_grad(set_to_none=True)
        try:
            loss, pr = _gradients(fitting, state.distribution, model, number)
            break
        except (RuntimeError, MemoryError) as error:
            smaller = fitting.classifier.micro_batch // 2
            if not is_out_of_memory(error) or not smaller:
                raise
            logger.warning("out of memory: continuing with a micro-batch of %d", smaller)
            fitting = replace(fitting, classifier=replace(fitting.classifier, micro_batch=smaller))
    norm = float(nn.utils.clip_grad_norm_(state.distribution.parameters(), recipe.clip or math.inf))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FitError(
            f"the fit of {fitting.stage} gave a NaN or infinite"
            f" {'loss' if math.isfinite(norm) else 'gradient'} at step {number + 1} of {steps}."
            " The last good state is kept. Check the classifier's logits, or lower the learning rate."
        )
    for optimiser in state.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group["full"] * recipe.rate_at(number, steps)
        optimiser.step()
    if recipe.bound is not None:
        with torch.no_grad():
            state.distribution.mixture.means.clamp_(-recipe.bound, recipe.bound)
    state.loss.append(loss)
    state.pr.append(pr)
    return fitting


def _gradients(
    fitting: Fitting, distribution: Distribution, model: FrozenClassifier, number: int
) -> tuple[float, float]:
    """Add up the gradients of a step; its mean loss and PR."""
    recipe, classifier = fitting.recipe, fitting.classifier
    tau = recipe.tau_at(number, fitting.steps)
    heat = recipe.heat_at(number, fitting.steps)
    loss_of = LOSS_FUNCTIONS[recipe.loss]
    images = recipe.inputs * recipe.draws
    loss, correct = 0.0, 0
    if recipe.scores:
        return _score_gradients(fitting, distribution, model, number)
    for epoch, positions in _positions(
        fitting, number, max(math.prod(distribution.shape), fitting.pixels)
    ):
        x, y = fitting.inputs.batch(positions, classifier.device)
        context = distribution.sees(y, fitting.inputs.features_at(positions, classifier.device))
        draws = _draws(fitting, positions, epoch)
        delta, given = distribution.relaxed(context, draws, fitting.budget, tau, heat)
        labels = y.repeat_interleave(recipe.draws)
        moved = fitting.budget.apply(x.unsqueeze(1), delta)
        require_graph(moved)
        # Gradients pass where images are clipped: other inputs are not clipped there.
        gradient, logits = _in_pieces(
            model, moved.detach().flatten(0, 1).clamp(0, 1), labels, classifier.micro_batch,
            lambda z, y: loss_of(*model.to_classes(z, y), recipe.kappa) / images,
        )  # fmt: skip
        logits, labels = model.to_classes(logits, labels)
        loss += float(loss_of(logits, labels, recipe.kappa).sum())
        correct += int((logits.argmax(1) == labels).sum())
        ends, slopes = [moved], [gradient.view_as(moved)]
        if recipe.entropy or recipe.diversity:
            ends.append(regulariser(given, recipe.entropy, recipe.diversity))
            slopes.append(torch.full_like(ends[1], len(positions) / recipe.inputs))
        torch.autograd.backward(ends, slopes)
    return loss / images, correct / images


def _score_gradients(
    fitting: Fitting, distribution: Distribution, model: FrozenClassifier, number: int
) -> tuple[float, float]:
    """Add up gradients from answers alone: natural evolution with an antithetic pair per input.

    With e a normal step from the mean m of an input and u the ranks of the losses f of the whole step,
    from -1/2 to 1/2: the gradient in m is `(u(f(m + s e)) - u(f(m - s e))) e / 2 s` on average, up to
    scale (Wierstra et al., 2014; Salimans et al., 2017). Ranks keep a few inputs from dominating.
    """
    recipe, classifier = fitting.recipe, fitting.classifier
    tau = recipe.tau_at(number, fitting.steps)
    found: list[tuple[Tensor, Tensor]] = []
    losses: list[Tensor] = []
    loss, correct = 0.0, 0
    pixels = max(math.prod(distribution.shape), fitting.pixels)
    for epoch, positions in _positions(fitting, number, pixels):
        x, y = fitting.inputs.batch(positions, classifier.device)
        context = distribution.sees(y, fitting.inputs.features_at(positions, classifier.device))
        draws = _draws(fitting, positions, epoch)
        means, step, delta = distribution.pair(context, draws, fitting.budget, tau, SCORE_STD)
        labels = y.repeat_interleave(2)
        images = perturbed(x.unsqueeze(1), delta, fitting.budget).flatten(0, 1)
        with torch.no_grad():
            found_logits = [model.logits(piece) for piece in images.split(classifier.micro_batch)]
        logits, labels = model.to_classes(torch.cat(found_logits), labels)
        each = LOSS_FUNCTIONS[recipe.loss](logits, labels, recipe.kappa)
        loss += float(each.sum())
        correct += int((logits.argmax(1) == labels).sum())
        losses.append(each.view(-1, 2))
        found.append((means, step))
    every = torch.cat(losses)
    count = every.numel()
    ranks = every.flatten().argsort(stable=True).argsort(stable=True).to(every)
    utilities = (ranks / max(1, count - 1) - 0.5).view(-1, 2)
    weights = (utilities[:, 0] - utilities[:, 1]).split([len(each) for each, _ in found])
    for (means, step), weight in zip(found, weights, strict=True):
        torch.autograd.backward(means, weight[:, None, None] * step / (2 * SCORE_STD * count))
    return loss / count, correct / count


def _in_pieces(
    model: FrozenClassifier,
    x: Tensor,
    y: Tensor,
    size: int,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Gradients and logits, in 2, 4, 8, ... equal pieces of at most a micro-batch."""
    pieces = min(len(x), max(2, 2 ** (-(-len(x) // size) - 1).bit_length()))
    found = [
        model.gradient(lambda z, y=labels: loss_of(z, y), images, rough=True)  # type: ignore[misc]
        for images, labels in zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True)
    ]
    gradients, logits = (torch.cat([each[i] for each in found]) for i in (0, 1))
    return gradients, logits


def _positions(fitting: Fitting, number: int, pixels: int) -> Iterator[tuple[int, IntArray]]:
    """The inputs of a step in batches, each with the epoch it belongs to.

    An epoch goes through all inputs once, in its own order; a step may begin the next epoch. A
    batch is at most 1, 2, 4, 8, ... micro-batches.
    """
    inputs, recipe = len(fitting.inputs), fitting.recipe
    micro_batch = fitting.classifier.micro_batch
    whole = max(1, SEARCHED_NUMBERS // pixels // micro_batch)
    size = max(1, micro_batch * 2 ** (whole.bit_length() - 1) // recipe.draws)
    first, last = number * recipe.inputs, (number + 1) * recipe.inputs
    for epoch in range(first // inputs, (last - 1) // inputs + 1):
        seed = derive_seed(fitting.seed, "fit/order", 0, epoch) & 0xFFFFFFFF
        order = np.random.default_rng(seed).permutation(inputs)
        chosen = order[max(0, first - epoch * inputs) : last - epoch * inputs]
        for start in range(0, len(chosen), size):
            yield epoch, chosen[start : start + size]


def _draws(fitting: Fitting, positions: IntArray, epoch: int) -> DrawBlock:
    return DrawBlock(
        seed=fitting.seed,
        split=f"{fitting.inputs.split.kind.name}/{fitting.stage}",
        indices=tuple(fitting.inputs.split.indices[positions].tolist()),
        block=epoch,
        size=fitting.recipe.draws,
        device=fitting.classifier.device,
        capacity=fitting.recipe.draws,
    )


def soft_margin(logits: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """`softplus(h_y - max_{j != y} h_j + kappa)`, the paper's loss."""
    return F.softplus(kappa - losses.margin(logits, labels))


def negative_cross_entropy(logits: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """Minus the cross-entropy: `log p_y`, not below `-kappa - 10`, or a few inputs would dominate."""
    return -F.cross_entropy(logits, labels, reduction="none").clamp_max(kappa + 10)


LOSS_FUNCTIONS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "margin": soft_margin,
    "cross-entropy": negative_cross_entropy,
}
"""Smooth surrogates of a correct classification.

Each maps logits `(B, classes)`, labels `(B,)` and kappa to one number per image, small where the
classification is wrong.
"""


def regulariser(given: Given, entropy: float, diversity: float) -> Tensor:
    """`-entropy * H(weights) + diversity * similarity of the means`, averaged over contexts.

    The similarity is the mean squared cosine between two components. Both keep components apart
    while they search.
    """
    total = given.means.new_zeros(())
    if entropy:
        weights = given.log_weights.exp()
        total = total + entropy * (weights * given.log_weights).sum(-1).mean()
    if diversity and given.means.shape[1] > 1:
        unit = F.normalize(given.means, dim=-1)
        cosines = (unit @ unit.transpose(-1, -2)).square()
        pairs = given.means.shape[1] * (given.means.shape[1] - 1)
        own = cosines.diagonal(dim1=-2, dim2=-1).sum(-1)
        total = total + diversity * ((cosines.sum((-1, -2)) - own) / pairs).mean()
    return total
