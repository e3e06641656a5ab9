"""Any model as a classifier `h: [0, 1]^(B, C, H, W) -> R^(B, classes)`.

The wrapper holds the normalisation, finds the logits in what the model returns and finds the
penultimate features. It never changes the model: a `FrozenClassifier` runs it in eval mode, restores
the mode of every submodule exactly, and takes gradients in the input only.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nppr.budget import quantised
from nppr.classifiers.features import collect_features
from nppr.errors import ClassifierError, GradientError, NpprError

__all__ = [
    "Classifier",
    "FrozenClassifier",
    "Quirks",
    "find_logits",
    "frozen",
    "is_out_of_memory",
]

Model = nn.Module | Callable[[Tensor], Any]


@dataclass(frozen=True)
class Quirks:
    """The care a foreign model needs.

    `in_place`: a copy of its input, which it overwrites. `needs_two`: at least two images, because it
    drops dimensions of size one.
    """

    in_place: bool = False
    needs_two: bool = False


class Classifier:
    """A model with its normalisation.

    `mean` and `std` (one number or one per channel) are applied to inputs in [0, 1] before the model;
    `channels_last` says in which memory order the model wants them; `features` names the layer to read
    features from; `fingerprint` stands for the weights of a model that is not a module; `weights` is
    the file they came from, for the record.
    """

    def __init__(
        self,
        model: Model,
        *,
        mean: Sequence[float] | float | None = None,
        std: Sequence[float] | float | None = None,
        name: str | None = None,
        channels_last: bool = False,
        features: str | None = None,
        fingerprint: str | None = None,
        quirks: Quirks | None = None,
        weights: str | None = None,
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
        self.features = features
        self.quirks = quirks or Quirks()
        self.weights = weights
        self._fingerprint = fingerprint

    def with_model(self, model: Model, *, channels_last: bool = False) -> Classifier:
        """The same classifier in another form of its model."""
        return Classifier(
            model,
            mean=self.mean,
            std=self.std,
            name=self.name,
            channels_last=channels_last,
            features=self.features,
            quirks=self.quirks,
            weights=self.weights,
        )

    def with_quirks(self, quirks: Quirks) -> Classifier:
        """The same classifier, treated with the care its model needs."""
        other = copy.copy(self)
        other.quirks = quirks
        return other

    @property
    def module(self) -> nn.Module | None:
        """The model if it is a module, None if it is a plain callable."""
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def device(self) -> torch.device | None:
        """Where the model's parameters or buffers are, or None if it does not say."""
        for tensor in self.tensors().values():
            return tensor.device
        device = getattr(self.model, "device", None)
        return device if isinstance(device, torch.device) else None

    def tensors(self) -> dict[str, Tensor]:
        """The model's parameters and buffers by name."""
        return {} if self.module is None else dict(self.module.state_dict())

    def fingerprint(self) -> str | None:
        """A hash of the weights and the normalisation, or None for a plain callable."""
        if self.module is None and self._fingerprint is None:
            return None
        digest = hashlib.sha256(repr((self.mean, self.std, self._fingerprint)).encode())
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(content.numpy().tobytes())
        return digest.hexdigest()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, run the model, find the logits: `(B, C, H, W) -> (B, classes)`."""
        if len(x) == 1 and self.quirks.needs_two:
            return self.forward(x.expand(2, *x.shape[1:]))[:1]
        normalised = self._normalised(x)
        logits = find_logits(self._run(normalised.clone() if self.quirks.in_place else normalised))
        if logits.ndim != 2 or len(logits) != len(x):
            raise ClassifierError(
                f"`model` must return logits of shape ({len(x)}, classes),"
                f" got {tuple(logits.shape)}."
            )
        return logits

    def _run(self, x: Tensor) -> Any:
        try:
            return self.model(x)
        except (NpprError, MemoryError):
            raise
        except Exception as error:  # a foreign model may fail in any way
            if is_out_of_memory(error):
                raise
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ClassifierError(
                f"`model` must accept {len(x)} images of shape {tuple(x.shape[1:])}, but"
                f" {self.name!r} failed: {reason}"
            ) from error

    def _normalised(self, x: Tensor) -> Tensor:
        if self.mean is not None:
            x = x - _per_channel("mean", self.mean, x)
        if self.std is not None:
            x = x / _per_channel("std", self.std, x)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last else x


class FrozenClassifier:
    """A classifier in eval mode that counts the images it is given.

    With `quantise` it sees 8-bit images, and a gradient is that at the 8-bit image: what a source
    tries is then what is measured.
    """

    def __init__(self, classifier: Classifier, *, quantise: bool = False) -> None:
        self.classifier = classifier
        self.quantise = quantise
        self.calls = 0

    def logits(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` in [0, 1] to `(B, classes)`; differentiable in `x` where the model is."""
        self.calls += len(x)
        return self.classifier.forward(quantised(x) if self.quantise else x)

    def gradient(self, loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient in `x` of the sum of `loss(logits)`, and the logits; parameters get none."""
        with torch.enable_grad():
            x = quantised(x.detach()) if self.quantise else x.detach()
            x.requires_grad_()
            self.calls += len(x)
            logits = self.classifier.forward(x)
            total = loss(logits).sum()
        if not total.requires_grad:
            raise GradientError(
                f"`model` must be differentiable for this source, but {self.classifier.name!r}"
                " gives no gradients. Leave the source out or give a PyTorch module."
            )
        (gradient,) = torch.autograd.grad(total, x)
        return gradient, logits.detach()

    def features(self, x: Tensor) -> Tensor:
        """The input of the last linear layer that runs, or the named layer's output, `(B, F)`."""
        return self.features_and_logits(x)[0]

    def features_and_logits(self, x: Tensor, *, wanted: bool = True) -> tuple[Tensor, Tensor]:
        """Features and logits in one pass; no features `(B, 0)` where none are wanted."""
        if not wanted:
            return x.new_empty(len(x), 0), self.logits(x)
        logits: list[Tensor] = []

        def run() -> Tensor:
            logits.append(self.logits(x))
            return logits[0]

        classifier = self.classifier
        found = collect_features(classifier.module, classifier.features, run, classifier.name)
        return found, logits[0]


@contextmanager
def frozen(classifier: Classifier, *, quantise: bool = False) -> Iterator[FrozenClassifier]:
    """The classifier in eval mode; on leaving, every submodule has the mode it had."""
    module = classifier.module
    modes = [] if module is None else [(layer, layer.training) for layer in module.modules()]
    try:
        if module is not None:
            module.eval()
        yield FrozenClassifier(classifier, quantise=quantise)
    finally:
        for layer, training in modes:
            layer.training = training


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


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


def _channel_numbers(
    argument: str, numbers: Sequence[float] | float | None, *, positive: bool
) -> tuple[float, ...] | None:
    if numbers is None:
        return None
    each = [numbers] if isinstance(numbers, int | float) else numbers
    values = tuple(float(number) for number in each)
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
