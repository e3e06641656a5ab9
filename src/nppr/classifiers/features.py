"""Features of inputs, read by hooks while a module runs.

By default they are the input of the last linear layer that runs; a named layer gives its output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nppr.errors import ClassifierError, unknown

__all__ = ["collect_features"]


def collect_features(
    module: nn.Module | None, layer: str | None, run: Callable[[], Tensor], name: str
) -> Tensor:
    """Features `(B, F)` of the B inputs that `run` puts through `module`."""
    seen: list[Tensor] = []
    with ExitStack() as hooks:
        for handle in _hooks(module, layer, seen):
            hooks.callback(handle.remove)
        inputs = len(run())
    if not seen or len(seen[-1]) != inputs:
        where = f"layer {layer!r} did not run" if layer else "it has no linear layer that runs"
        raise ClassifierError(
            f"`features` must be found in the model, but in {name!r} {where} on whole inputs."
            " Name a layer with --features, or take another model with --feature-model."
        )
    return seen[-1].flatten(1)


def _hooks(
    module: nn.Module | None, layer: str | None, seen: list[Tensor]
) -> list[RemovableHandle]:
    if module is None:
        return []

    def keep_input(_: nn.Module, inputs: tuple[object, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            seen.append(inputs[0])

    def keep_output(_: nn.Module, __: tuple[object, ...], output: object) -> None:
        if isinstance(output, Tensor):
            seen.append(output)

    if layer is None:
        linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
        return [part.register_forward_pre_hook(keep_input) for part in linear]
    layers = dict(module.named_modules())
    if layer not in layers or not layer:
        raise unknown("features", layer, [known for known in layers if known])
    return [layers[layer].register_forward_hook(keep_output)]
