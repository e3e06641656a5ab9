"""Any model as a classifier `h: [0, 1]^(B, C, H, W) -> R^(B, classes)`.

The wrapper holds the normalisation, finds the logits in what the model returns and finds the
penultimate features. It never changes the model: a `FrozenClassifier` runs it in eval mode, restores
the mode of every submodule exactly, and takes gradients in the input only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nppr.errors import ClassifierError, GradientError

__all__ = ["Classifier", "FrozenClassifier", "frozen"]

Model = nn.Module | Callable[[Tensor], Any]


class Classifier:
    """A model with its normalisation.

    `mean` and `std` (one number or one per channel) are applied to inputs in [0, 1] before the model;
    `channels_last` says in which memory order the model wants them.
    """

    def __init__(
        self,
        model: Model,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        name: str | None = None,
        channels_last: bool = False,
    ) -> None:
        if not callable(model):
            raise ClassifierError(
                "`model` must be an nn.Module or a callable that maps images to logits,"
                f" got {type(model).__name__}."
            )
        self.model = model
        self.mean = _channel_numbers("mean", mean, positive=False)
        self.std = _channel_numbers("std", std, positive=True)
        self.name: str = name or str(getattr(model, "__name__", type(model).__name__))
        self.channels_last = channels_last

    def with_model(self, model: Model, *, channels_last: bool = False) -> Classifier:
        """The same classifier in another form of its model."""
        return Classifier(
            model, mean=self.mean, std=self.std, name=self.name, channels_last=channels_last
        )

    @property
    def module(self) -> nn.Module | None:
        """The model if it is a module, None if it is a plain callable."""
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def device(self) -> torch.device | None:
        """Where the model's parameters or buffers are, or None if it has none."""
        for tensor in self.tensors().values():
            return tensor.device
        return None

    def tensors(self) -> dict[str, Tensor]:
        """The model's parameters and buffers by name."""
        return {} if self.module is None else dict(self.module.state_dict())

    def fingerprint(self) -> str | None:
        """A hash of the weights and the normalisation, or None for a plain callable."""
        if self.module is None:
            return None
        digest = hashlib.sha256(repr((self.mean, self.std)).encode())
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(content.numpy().tobytes())
        return digest.hexdigest()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, run the model, find the logits: `(B, C, H, W) -> (B, classes)`."""
        output = self.model(self._normalised(x))
        logits = find_logits(output)
        if logits.ndim != 2 or len(logits) != len(x):
            raise ClassifierError(
                f"`model` must return logits of shape ({len(x)}, classes),"
                f" got {tuple(logits.shape)}."
            )
        return logits

    def _normalised(self, x: Tensor) -> Tensor:
        if self.mean is not None:
            x = x - _per_channel("mean", self.mean, x)
        if self.std is not None:
            x = x / _per_channel("std", self.std, x)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last else x


class FrozenClassifier:
    """A classifier in eval mode that counts the images it is given."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.calls = 0

    def logits(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` in [0, 1] to `(B, classes)`; differentiable in `x` where the model is."""
        self.calls += len(x)
        return self.classifier.forward(x)

    def gradient(self, loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient in `x` of the sum of `loss(logits)`, and the logits; parameters get none."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            logits = self.logits(x)
            total = loss(logits).sum()
        if not total.requires_grad:
            raise GradientError(
                f"`model` must be differentiable for this source, but {self.classifier.name!r}"
                " gives no gradients. Leave the source out or give a PyTorch module."
            )
        (gradient,) = torch.autograd.grad(total, x)
        return gradient, logits.detach()

    def features(self, x: Tensor) -> Tensor:
        """The input of the last linear layer that runs, `(B, F)`."""
        module = self.classifier.module
        seen: list[Tensor] = []

        def remember(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0])

        with ExitStack() as hooks:
            for layer in module.modules() if module is not None else ():
                if isinstance(layer, nn.Linear):
                    handle = layer.register_forward_pre_hook(remember)
                    hooks.callback(handle.remove)
            self.logits(x)
        if not seen or len(seen[-1]) != len(x):
            raise ClassifierError(
                f"`model` must have a linear layer to read features from, got {self.classifier.name!r}"
                " with none that runs on whole inputs."
            )
        return seen[-1].flatten(1)


@contextmanager
def frozen(classifier: Classifier) -> Iterator[FrozenClassifier]:
    """The classifier in eval mode; on leaving, every submodule has the mode it had."""
    module = classifier.module
    modes = [] if module is None else [(layer, layer.training) for layer in module.modules()]
    try:
        if module is not None:
            module.eval()
        yield FrozenClassifier(classifier)
    finally:
        for layer, training in modes:
            layer.training = training


def find_logits(output: Any) -> Tensor:
    """The logits in a tensor, in `output.logits` or in `output["logits"]`."""
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    raise ClassifierError(
        "`model` must return a tensor, or carry one as .logits or ['logits'],"
        f" got {type(output).__name__}."
    )


def check_classifier(classifier: Classifier, x: Tensor, classes: int) -> None:
    """Raise `ClassifierError` unless the model gives `classes` finite logits for these inputs."""
    try:
        with frozen(classifier) as model, torch.no_grad():
            logits = model.logits(x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClassifierError(
            f"`model` must accept images of shape {tuple(x.shape[1:])}, but {classifier.name!r}"
            f" failed: {reason}"
        ) from error
    if logits.shape[1] != classes:
        raise ClassifierError(
            f"`model` must return one logit per class, expected {classes} classes,"
            f" got {logits.shape[1]}. Check the model, its weights and the data."
        )
    check_finite(logits, classifier.name)


def check_finite(logits: Tensor, name: str) -> None:
    """Raise `ClassifierError` on NaN or infinite logits."""
    if not bool(torch.isfinite(logits).all()):
        raise ClassifierError(
            f"`model` must return finite logits, got NaN or Inf from {name!r}."
            " Check the weights and the normalisation."
        )


def _channel_numbers(
    argument: str, numbers: Sequence[float] | None, *, positive: bool
) -> tuple[float, ...] | None:
    if numbers is None:
        return None
    values = tuple(float(number) for number in numbers)
    tensor = torch.tensor(values)
    if not values or not bool(torch.isfinite(tensor).all()) or (positive and tensor.min() <= 0):
        kind = "positive numbers" if positive else "finite numbers"
        raise ClassifierError(f"`{argument}` must be {kind}, one per channel, got {values}.")
    return values


def _per_channel(argument: str, numbers: tuple[float, ...], x: Tensor) -> Tensor:
    if len(numbers) not in (1, x.shape[1]):
        raise ClassifierError(
            f"`{argument}` must have 1 or {x.shape[1]} numbers, one per channel, got {len(numbers)}."
        )
    return torch.tensor(numbers, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)
