"""The interface for models of other libraries that have gradients.

A callable from inputs to logits is a model without gradients. With the two methods of `Backend`, it
has gradients and features, and can be searched and attacked like a PyTorch module.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Backend(Protocol):
    """A model of another library. It receives inputs after their layout and normalisation."""

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


def run_backend(backend: Backend, x: Tensor) -> Tensor:
    """Return logits that can be differentiated once in `x`."""
    logits: Tensor = _RunBackend.apply(x, backend)  # type: ignore[no-untyped-call]
    return logits
