"""Attacks and noise of the user's, as functions, beside our own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock, derive_seed
from nppr.core.tally import FrozenModel, Metric
from nppr.errors import DataError, SpecError
from nppr.sources.base import Guidance, Source
from nppr.system.user_code import contain_exits

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]
Sampler = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class CustomAttack(Source):
    """An attack `attack(model, x, y) -> x_adv` on images `(B, C, H, W)` with labels `(B,)`.

    `model` is a module in eval mode from images in [0, 1] to logits, normalisation included. PyTorch's
    generator is seeded before every call and restored after it. The result is checked against the
    budget, and a plain forward pass decides whether it counts.
    """

    metric = Metric.AR
    transforms = False
    fixed_draws = 1
    inputs_at_once = 64  # always the same: its random numbers may depend on it

    budget: Budget
    attack: Attack
    label: str | None = None
    passes: float = 60.0
    guidance: Guidance = Guidance.MORE  # type: ignore[misc]

    @property
    def name(self) -> str:
        return _name(self.label, self.attack)

    def at(self, budget: Budget) -> NoReturn:
        raise _one_radius(self.name)

    @property
    def cost(self) -> float:
        return self.passes

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, 1, C, H, W)`."""
        module = AsModule(model)
        seeded = _seeded(draws, self.name, draws.indices[0], x.device)
        with seeded, module.kept(), contain_exits():
            moved = self.attack(module, x.clone(), model.targets(y).clone())
        return _difference(self.name, moved, x).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class CustomNoise(Source):
    """Noise `sample(x, y, draws) -> x'`: one image `(1, C, H, W)` to `(1, draws, C, H, W)` of it.

    It is called for one input at a time with PyTorch's generator seeded for that input, so that its
    draws depend on neither the batch nor the order. The tally is read as PR.
    """

    transforms = False

    budget: Budget
    sample: Sampler
    label: str | None = None

    @property
    def name(self) -> str:
        return _name(self.label, self.sample)

    def at(self, budget: Budget) -> NoReturn:
        raise _one_radius(self.name)

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        made = []
        for row, index in enumerate(draws.indices):
            one, label = x[row : row + 1], model.targets(y[row : row + 1])
            with _seeded(draws, self.name, index, x.device), contain_exits():
                moved = self.sample(one.clone(), label.clone(), draws.capacity)
            wanted = one.unsqueeze(1).expand(1, draws.capacity, *x.shape[1:])
            made.append(_difference(self.name, moved, wanted)[:, : draws.size])
        return torch.cat(made)


class AsModule(nn.Module):
    """The frozen classifier as a module, with the parameters libraries look for its device in."""

    def __init__(self, model: FrozenModel) -> None:
        super().__init__()
        inner = getattr(getattr(model, "classifier", None), "module", None)
        if isinstance(inner, nn.Module):
            self.inner = inner
        self._logits = model.logits
        nn.Module.train(self, False)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """No gradients in the parameters meanwhile, and all layers back in eval mode after."""
        wanted = [each for each in self.parameters() if each.requires_grad]
        for each in wanted:
            each.requires_grad_(False)
        try:
            yield
        finally:
            for each in wanted:
                each.requires_grad_(True)
            for layer in self.modules():
                layer.training = False

    def train(self, mode: bool = True) -> AsModule:
        """Stay in eval mode: a source must not change how the classifier answers."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        return self._logits(x)


def _name(label: str | None, function: object) -> str:
    name = label or str(getattr(function, "__name__", type(function).__name__))
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SpecError(
            f"`label` must name the source with letters, digits, ., - or _, got {name!r}."
            " Example: CustomNoise(budget, sample, label='sensor')"
        )
    return name


def _one_radius(name: str) -> SpecError:
    return SpecError(
        f"source {name!r} has one radius only: its code is not given another."
        " Leave it out of a run with radii."
    )


@contextmanager
def _seeded(draws: DrawBlock, name: str, index: int, device: torch.device) -> Iterator[None]:
    """PyTorch's generators seeded for a source and an input, restored on leaving."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(
            derive_seed(draws.seed, f"{draws.split}/custom/{name}", index, draws.block)
        )
        yield


def _difference(name: str, moved: object, x: Tensor) -> Tensor:
    """`moved - x`, checked."""
    if not isinstance(moved, Tensor):
        raise DataError(f"source {name!r} must return a tensor, got {type(moved).__name__}.")
    if moved.shape != x.shape:
        raise DataError(
            f"source {name!r} must return images of shape {tuple(x.shape)},"
            f" got {tuple(moved.shape)}."
        )
    moved = moved.detach().to(x)
    if not bool(torch.isfinite(moved).all()):
        raise DataError(f"source {name!r} must return finite numbers, got NaN or infinite ones.")
    return moved - x
