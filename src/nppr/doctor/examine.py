"""Checks of a classifier and its data before any source is measured."""

from __future__ import annotations

import numpy as np
import torch

from nppr.data import Data
from nppr.doctor.flags import OUT_OF_RANGE, overlap_flags
from nppr.doctor.model_checks import check_inputs, check_model
from nppr.doctor.result_checks import check_results
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.report.model import Flag
from nppr.sources import Clean


def examine(
    classifier: Classifier,
    data: Data,
    *,
    device: str | torch.device | None = None,
    micro_batch: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[Flag, ...]:
    """Return all flags that need no source: flags of the splits, the model and its clean answers."""
    inputs = check_inputs(data)
    if any(each.id == OUT_OF_RANGE for each in inputs):  # no measurement would accept them
        return (*overlap_flags(data), *inputs)
    ready = prepare(
        classifier,
        probe(data.evaluate),
        classes=data.classes,
        device=device,
        micro_batch=micro_batch,
    )
    return examine_ready(ready, data, seed=seed, confidence=confidence)


def examine_ready(
    ready: PreparedClassifier, data: Data, *, seed: int = 0, confidence: float = 0.95
) -> tuple[Flag, ...]:
    """Return the same flags for a prepared classifier, on inputs in [0, 1]."""
    overlapping, found = overlap_flags(data), check_model(ready.original, data, seed=seed)
    everything = np.ones(len(data.evaluate), bool)
    clean = measure(Clean(), ready, data.evaluate, clean_correct=everything)
    measured = check_results((), {}, (), (), clean, data.classes, confidence)
    return (*overlapping, *found, *measured)
