"""What a model must keep while it is asked: its weights, its buffers and its mode."""

from __future__ import annotations

import torch
from torch import nn

from nppr.data import content_hash
from nppr.flags import MODEL_CHANGED, TRAIN_MODE, flag
from nppr.report.schema import Flag

__all__ = ["check_kept", "check_mode", "remember"]


def remember(module: nn.Module | None) -> dict[str, bytes]:
    """A hash of every parameter and buffer by name, those outside the state dict too."""
    if module is None:
        return {}
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: content_hash(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
        for name, tensor in tensors.items()
    }


def check_mode(module: nn.Module | None) -> tuple[Flag, ...]:
    """Whether the model was handed over in training mode, or a layer of it."""
    layers = [] if module is None else list(module.modules())
    training = sum(layer.training for layer in layers)
    if not training:
        return ()
    return (flag(TRAIN_MODE, f"{training:,} of {len(layers):,} layers are in training mode"),)


def check_kept(module: nn.Module | None, before: dict[str, bytes]) -> tuple[Flag, ...]:
    """What calls in eval mode have changed; for a model that still should be in eval mode."""
    after = remember(module)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    switched = [] if module is None else [layer for layer in module.modules() if layer.training]
    found = []
    if changed:
        found.append(f"{', '.join(changed[:3])}{' and others' * (len(changed) > 3)} changed")
    if switched:
        found.append(f"{len(switched):,} layers went into training mode")
    return (flag(MODEL_CHANGED, ", ".join(found)),) if found else ()
