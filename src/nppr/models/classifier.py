"""Wrap any model as a classifier `h: [0, 1]^(B, C, H, W) -> R^(B, classes)`.

The wrapper holds the normalisation and finds the logits in the model's output. It never changes the
model: a `FrozenClassifier` runs it in eval mode, and computes gradients in the input only.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from nppr.core.budget import quantised
from nppr.core.task import Task
from nppr.data.data_set import Data
from nppr.data.layout import Layout
from nppr.errors import ClassifierError, GradientError, NpprError, reason_of, unknown
from nppr.system.user_code import contain_exits

logger = logging.getLogger(__name__)

Model = nn.Module | Callable[[Tensor], Any]


@dataclass(frozen=True)
class Quirks:
    """Special handling that a user's model needs."""

    in_place: bool = False
    """It overwrites its input, so it receives a copy."""
    needs_two: bool = False
    """It drops dimensions of size one, so it receives at least two images."""
    classes: int | None = None
    """Number of logits that it returns for an image; another number is an error."""


@runtime_checkable
class Backend(Protocol):
    """A model of another library that has gradients and features, and can be attacked like a module.

    It receives inputs after their layout and normalisation.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """Return logits `(B, classes)` of inputs `(B, C, H, W)`."""

    def gradient(self, x: Tensor, upstream: Tensor) -> Tensor:
        """Return the gradient in `x` of the sum of `upstream * model(x)`, in the shape of `x`."""

    def features(self, x: Tensor) -> Tensor:
        """Return features `(B, F)`, such as the input of the last layer."""


class _RunBackend(torch.autograd.Function):
    """Logits whose backward pass asks the backend for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, backend: Backend) -> Tensor:
        ctx.save_for_backward(x)
        ctx.backend = backend
        return backend(x.detach())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.backend.gradient(x, upstream).to(x), None


class Classifier:
    """A model with its normalisation.

    `mean` and `std` (one number, or one per channel) are applied to inputs in [0, 1] before the
    model. `channels_last` is the memory order of its inputs, `features` is the layer whose output
    counts as features, `fingerprint` identifies the weights of a model that is not a module, and
    `weights` and `weights_sha256` record the file that they came from.
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
        weights: str | None = None,
        weights_sha256: str | None = None,
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
        self.bfloat16_copy: nn.Module | None = None  # see `with_rough_gradients`
        self.quirks: Quirks | None = None  # None until the model is checked
        self.layout: Layout | None = None  # None until the data are known
        self.task: Task | None = None
        self.targets: Tensor | None = None
        self.weights = weights
        self.weights_sha256 = weights_sha256
        self._fingerprint = fingerprint

    def with_model(self, model: nn.Module, *, channels_last: bool = False) -> Classifier:
        """Return the classifier with another variant of its model."""
        return self._with(model=model, channels_last=channels_last, bfloat16_copy=None)

    def with_bfloat16_copy(self, made: nn.Module | None) -> Classifier:
        """Return the classifier with a copy of its model in 16-bit floats, for rough gradients."""
        return self._with(bfloat16_copy=made)

    def for_data(self, data: Data) -> Classifier:
        """Return the classifier for inputs of these data, with their layout, task and targets."""
        return self._with(layout=data.layout, task=data.task, targets=data.targets)

    def with_quirks(self, quirks: Quirks) -> Classifier:
        """Return the classifier with the special handling that its model needs."""
        return self._with(quirks=quirks)

    def _with(self, **changes: object) -> Classifier:
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    @property
    def module(self) -> nn.Module | None:
        """The model, or None if it is not a PyTorch module."""
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def backend(self) -> Backend | None:
        """The model, if it belongs to another library and has gradients."""
        model = self.model
        return model if isinstance(model, Backend) and not isinstance(model, nn.Module) else None

    @property
    def device(self) -> torch.device | None:
        """The device of the model's parameters or buffers, or None if it is unknown."""
        for tensor in self.tensors().values():
            return tensor.device
        device = getattr(self.model, "device", None)
        return device if isinstance(device, torch.device) else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the model's parameters and buffers by name."""
        return {} if self.module is None else dict(self.module.state_dict())

    def fingerprint(self) -> str | None:
        """Return a hash of the weights and the normalisation, or None for a plain callable."""
        if self.module is None and self._fingerprint is None:
            return None
        digest = hashlib.sha256(repr((self.mean, self.std, self._fingerprint)).encode())
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(content.numpy().tobytes())
        return digest.hexdigest()

    def forward(self, x: Tensor, *, rough: bool = False) -> Tensor:
        """Normalise, run the model, find the logits: `(B, C, H, W) -> (B, classes)`.

        With `rough`, the copy in 16-bit floats runs, if there is one.
        """
        quirks = self.quirks or Quirks()
        if len(x) == 1 and quirks.needs_two:
            return self.forward(x.expand(2, *x.shape[1:]), rough=rough)[:1]
        normalised = self.normalised(x)
        if quirks.in_place:
            normalised = normalised.clone()
        if rough and self.bfloat16_copy is not None:
            logits: Tensor = self.bfloat16_copy(normalised)
        else:
            logits = find_logits(self._run(normalised))
        if self.task is not None:
            if not logits.ndim or len(logits) != len(x):
                raise ClassifierError(
                    f"`model` must return a tensor with one entry for each of {len(x)} inputs,"
                    f" got {tuple(logits.shape)}."
                )
            return logits
        if logits.dtype is torch.bool:
            raise ClassifierError(
                "`model` must return logits, got booleans. Return its scores before they are compared."
            )
        classes = quirks.classes or logits.shape[-1:].numel()
        if logits.shape != (len(x), classes):
            raise ClassifierError(
                f"`model` must return logits of shape ({len(x)}, {quirks.classes or 'classes'}),"
                f" got {tuple(logits.shape)}."
            )
        return logits

    def _run(self, x: Tensor) -> Any:
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            with contain_exits():
                if self.backend is None:
                    return self.model(x)
                return _RunBackend.apply(x, self.backend)  # type: ignore[no-untyped-call]
        except (NpprError, MemoryError):
            raise
        except Exception as error:  # a user's model may fail in any way
            if is_out_of_memory(error):
                raise
            raise ClassifierError(
                f"`model` must accept {len(x)} images of shape {tuple(x.shape[1:])}, but"
                f" {self.name!r} failed: {reason_of(error)}"
            ) from error

    def normalised(self, x: Tensor) -> Tensor:
        """Return the model's inputs for inputs in [0, 1], with their layout and normalisation."""
        if self.layout is not None:
            x = self.layout.from_unit(x)
        if self.mean is not None:
            x = x - _per_channel("mean", self.mean, x)
        if self.std is not None:
            x = x / _per_channel("std", self.std, x)
        return x


@dataclass(eq=False)
class FrozenClassifier:
    """A classifier in eval mode; `calls` counts the images it classified.

    With `quantise`, the model sees, and gradients are taken at, the 8-bit images that are measured.
    """

    classifier: Classifier
    quantise: bool = False
    calls: int = 0

    def logits(self, x: Tensor) -> Tensor:
        """Classify `(B, C, H, W)` in [0, 1]: logits `(B, classes)`, differentiable if the model is."""
        self.calls += len(x)
        return self.classifier.forward(quantised(x) if self.quantise else x)

    def gradient(
        self, loss: Callable[[Tensor], Tensor], x: Tensor, *, rough: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient in `x` of the sum of `loss(logits)`, and the logits.

        `rough` gradients may come from the faster copy in 16-bit floats.
        """
        with torch.enable_grad():
            x = quantised(x.detach()) if self.quantise else x.detach()
            x.requires_grad_()
            self.calls += len(x)
            logits = self.classifier.forward(x, rough=rough)
            total = loss(logits).sum()
        if not total.requires_grad:
            task = self.classifier.task
            given = "or give a PyTorch module" if task is None else "or give a task with a `score`"
            raise GradientError(
                f"`model` must be differentiable for this source, but {self.classifier.name!r}"
                f" gives no gradients. Leave the source out {given} that has them."
            )
        with contain_exits():  # the backward pass may also run the user's code
            (gradient,) = torch.autograd.grad(total, x)
        return gradient, logits.detach()

    def to_classes(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `(B, classes)` and labels `(B,)`; a task has two: incorrect and correct."""
        task = self.classifier.task
        return (logits, y) if task is None else task.to_classes(logits, self.targets(y))

    def attacked_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss that attacks maximise, `(B,)`: cross-entropy, or minus the score of a task.

        A score may have any unit, and the cross-entropy of a large score is flat.
        """
        logits, labels = self.to_classes(logits, y)
        if self.classifier.task is None:
            return nn.functional.cross_entropy(logits, labels, reduction="none")
        return logits[:, 0] - logits[:, 1]

    def targets(self, y: Tensor) -> Tensor:
        """Return the targets of answers: the labels, or the targets of a task."""
        known = self.classifier.targets
        return y if known is None else known.to(y.device)[y]

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the last linear layer, or the output of the named layer, `(B, F)`."""
        return self.features_and_logits(x)[0]

    def features_and_logits(self, x: Tensor, *, wanted: bool = True) -> tuple[Tensor, Tensor]:
        """Return features and logits in one pass; features are `(B, 0)` unless they are wanted."""
        if not wanted:
            return x.new_empty(len(x), 0), self.logits(x)
        layer, backend = self.classifier.features, self.classifier.backend
        if backend is not None:
            self.calls += len(x)
            inputs = self.classifier.normalised(quantised(x) if self.quantise else x)
            return backend.features(inputs.detach()).flatten(1), self.logits(x)
        with _recorded_features(self.classifier.module, layer) as seen:
            logits = self.logits(x)
        if not seen or len(seen[-1]) != len(x):
            where = f"layer {layer!r} did not run" if layer else "it has no linear layer that runs"
            raise ClassifierError(
                f"`features` must be found in the model, but in {self.classifier.name!r} {where} on"
                " the whole batch. Name a layer with --features, or another model with"
                " --feature-model."
            )
        return seen[-1].flatten(1), logits


@contextmanager
def frozen(classifier: Classifier, *, quantise: bool = False) -> Iterator[FrozenClassifier]:
    """Yield the classifier in eval mode; restore the mode of every submodule afterwards."""
    module = classifier.module
    modes = [] if module is None else [(layer, layer.training) for layer in module.modules()]
    try:
        if module is not None:
            module.eval()
        yield FrozenClassifier(classifier, quantise=quantise)
    finally:
        for layer, training in modes:
            layer.training = training


@contextmanager
def _recorded_features(module: nn.Module | None, layer: str | None) -> Iterator[list[Tensor]]:
    """Record the inputs of linear layers, or the outputs of a named layer, as forward passes run."""
    seen: list[Tensor] = []

    def keep(*found: object) -> None:
        seen.extend(each for each in found[:1] if isinstance(each, Tensor))

    layers = {} if module is None else dict(module.named_modules())
    if module is not None and layer is not None and not (layer and layer in layers):
        raise unknown("features", layer, [known for known in layers if known])
    if layer is None:
        linear = [each for each in layers.values() if isinstance(each, nn.Linear)]
        hooks = [each.register_forward_pre_hook(lambda _, x: keep(*x)) for each in linear]
    else:
        hooks = [layers[layer].register_forward_hook(lambda _, __, y: keep(y))] if layers else []
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def check_classifier(classifier: Classifier, x: Tensor, classes: int) -> Quirks:
    """Require `classes` finite logits for inputs like `x`; return the handling that the model needs."""
    pair = x[:1].expand(2, *x.shape[1:]) if len(x) == 1 else x
    with frozen(classifier) as model, torch.no_grad():
        seen = pair.clone()
        logits = model.logits(seen)
        if classifier.task is None and logits.shape[1] != classes:
            raise ClassifierError(
                f"`model` must return one logit per class, expected {classes} classes, got"
                f" {logits.shape[1]}. Check the model and its weights; for labels that do not show"
                " all classes, give --classes, or `classes` to nppr.from_arrays."
            )
        check_finite(logits, classifier.name)
        needs_two = False
        try:
            model.logits(x[:1].clone())
        except ClassifierError as error:
            logger.debug("%s does not take a single image: %s", classifier.name, error)
            needs_two = True
    normalises = classifier.mean is not None or classifier.std is not None
    in_place = not normalises and not torch.equal(seen, pair)
    return Quirks(in_place, needs_two, classes)


def check_finite(logits: Tensor, name: str) -> None:
    """Raise `ClassifierError` on NaN or infinite logits."""
    if not bool(torch.isfinite(logits).all()):
        raise ClassifierError(
            f"`model` must return finite logits, got NaN or infinite ones from {name!r}."
            " Check the weights and the normalisation."
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports that memory ran out, on any device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def find_logits(output: Any) -> Tensor:
    """Find the logits, real numbers in memory: a tensor, `output.logits` or `output["logits"]`."""
    found = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    logits = output if isinstance(output, Tensor) else found
    if not isinstance(logits, Tensor):
        raise ClassifierError(
            "`model` must return a tensor, or carry one as .logits or ['logits'],"
            f" got {type(output).__name__}."
        )
    if logits.layout is not torch.strided:
        got, fix = "a sparse tensor", "Return logits.to_dense()"
    elif logits.is_complex():
        got, fix = f"complex numbers ({logits.dtype})", "Return their real part or their size"
    elif logits.is_meta:
        got, fix = "a tensor without data (device meta)", "Load the weights"
    else:
        return logits
    raise ClassifierError(f"`model` must return a tensor of real numbers, got {got}. {fix}.")


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
    each = (1, -1, *[1] * (x.ndim - 2))
    return torch.tensor(numbers, dtype=x.dtype, device=x.device).view(each)
