"""Rough gradients: with the engine `bfloat16`, fits of noise follow a copy in 16-bit floats.

A fit averages gradients over many inputs and needs only their direction; the noise it finds is
selected and measured with the model. On a processor that computes in 16-bit floats, forward and
backward passes take two thirds of the time. On resnet20, rough and exact gradients have a cosine of
0.98. Attacks and the rung `per-input` follow the gradient of a single input and use exact
gradients. The processor, the model and the probe decide whether a fit uses rough gradients. Timing
does not, so the same seed gives the same noise.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nppr.models.bfloat16_copy import Bfloat16Model, computes_in_bfloat16
from nppr.models.classifier import Classifier, frozen
from nppr.models.prepare_classifier import PreparedClassifier

logger = logging.getLogger(__name__)

LEAST_OPERATIONS = 2e7
"""Minimum operations of a forward pass of one image; a smaller network gains nothing."""

LEAST_COSINE = 0.9
"""Minimum mean cosine between rough and exact gradients of an image."""


def with_rough_gradients(
    prepared: PreparedClassifier, probe: Tensor, wanted: bool | None = None
) -> PreparedClassifier:
    """Add a copy of the model for rough gradients, if it is `wanted`.

    None adds it if the copy is faster and its gradients agree. Accelerators are left unchanged.
    """
    model = prepared.fast
    if model.module is None or wanted is False:
        return prepared
    try:
        if wanted or _suits(prepared, probe.to(prepared.device)):
            return replace(prepared, fast=model.with_bfloat16_copy(Bfloat16Model(model)))
    except Exception as error:  # a user's model may fail in any way
        logger.debug("%s has no rough gradients: %s", model.name, error)
    return prepared


def _suits(prepared: PreparedClassifier, probe: Tensor) -> bool:
    """Whether rough gradients are faster and point in the same direction."""
    model = prepared.fast
    if prepared.device.type != "cpu" or not computes_in_bfloat16(prepared.device):
        return False
    if _operations(model, probe[:1]) < LEAST_OPERATIONS:
        return False
    guided = model.with_bfloat16_copy(Bfloat16Model(model))
    return _cosine(guided, probe.split(prepared.micro_batch)) >= LEAST_COSINE


def _operations(classifier: Classifier, x: Tensor) -> float:
    """Count the floating-point operations of a forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and rarely needed

    with frozen(classifier) as model, torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(x)
    return float(counter.get_total_flops()) / len(x)


def _cosine(classifier: Classifier, batches: Sequence[Tensor]) -> float:
    """Return the mean cosine between rough and exact gradients of log-sum-exp."""
    found = []
    with frozen(classifier) as model:
        for x in batches:
            exact, rough = (
                model.gradient(lambda logits: logits.logsumexp(1), x, rough=each)[0].flatten(1)
                for each in (False, True)
            )
            found.append(torch.nn.functional.cosine_similarity(exact, rough))
    return float(torch.cat(found).mean())
