"""Rough gradients: a copy of the model in 16-bit floats leads the search for the worst noise.

A search needs a direction, not its last digits: what it finds is judged and measured by the model. On a
processor that computes in 16-bit floats their forward and backward passes take about two thirds of
the time, and on resnet20 a rough gradient and an exact one have a cosine of 0.98. Attacks never use
them. Whether a search does is decided by the processor, the model and the probe, never by the clock:
the same seed gives the same noise.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from nppr.classifiers.classifier import Classifier, frozen
from nppr.classifiers.forward_engines import Narrow, computes_in_bfloat16
from nppr.classifiers.prepare_classifier import FORMS, Prepared, fastest_form

logger = logging.getLogger(__name__)

WORTHWHILE = 2e7
"""Operations of a forward pass of one image; in a smaller network other things take the time."""

LEAST_COSINE = 0.9
"""Between rough and exact gradients of an image, on average."""


def with_rough_gradients(prepared: Prepared, probe: Tensor) -> Prepared:
    """With a copy of the model for rough gradients, where it would be faster and points the same way.

    The copy is made from the form in which searches run. Accelerators have precisions of their own and
    run as they are.
    """
    reference = prepared.reference
    suits = prepared.device.type == "cpu" and computes_in_bfloat16(prepared.device)
    if reference.module is None or not suits:
        return prepared
    probe = probe.to(prepared.device)
    try:
        form, _ = fastest_form(reference, probe, FORMS)
        if _operations(form, probe[:1]) < WORTHWHILE:
            return prepared
        guided = form.with_guide(Narrow(form))
        if _cosine(guided, probe) < LEAST_COSINE:
            return prepared
    except Exception as error:  # a foreign model may fail in any way
        logger.debug("%s has no rough gradients: %s", reference.name, error)
        return prepared
    return replace(prepared, fast=prepared.fast.with_guide(guided.guide))


def _operations(classifier: Classifier, x: Tensor) -> float:
    """Floating-point operations of a forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and rarely needed

    with frozen(classifier) as model, torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(x)
    return float(counter.get_total_flops()) / len(x)


def _cosine(classifier: Classifier, x: Tensor) -> float:
    """The mean cosine between rough and exact gradients of the cross-entropy of the answers."""
    with frozen(classifier) as model:
        exact, rough = (
            model.gradient(lambda logits: logits.logsumexp(1) - logits.amax(1), x, rough=each)[0]
            for each in (False, True)
        )
    return float(torch.nn.functional.cosine_similarity(exact.flatten(1), rough.flatten(1)).mean())
