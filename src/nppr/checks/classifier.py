"""A few batches through a classifier: is it one whose robustness can be measured?"""

from __future__ import annotations

import torch
from torch import Tensor

from nppr.checks.answers import check_answers
from nppr.checks.gradients import check_gradients
from nppr.checks.inputs import check_inputs, probe_positions
from nppr.checks.state import check_kept, check_mode, remember
from nppr.classifiers import Classifier, check_classifier, frozen
from nppr.data import Data
from nppr.flags import OUT_OF_RANGE
from nppr.report.schema import Flag

__all__ = ["check_model"]


def check_model(classifier: Classifier, data: Data, *, seed: int = 0) -> tuple[Flag, ...]:
    """Flags of a classifier on at most 32 inputs spread over the evaluate part, in a few batches.

    `seed` is that of the noise images among them. A model that is no classifier of these data raises
    `ClassifierError`. Nothing runs on pixels outside [0, 1], which no measurement would accept.
    """
    flags = check_inputs(data)
    if any(found.id == OUT_OF_RANGE for found in flags):
        return flags
    place = classifier.device or torch.get_default_device()
    x, y = (each.to(place) for each in data.evaluate.batch(probe_positions(data)))
    # Whatever a model draws at random, what is measured after the check is what is without it.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return (*flags, *_check(classifier, x, y, data.classes, seed))


def _check(
    classifier: Classifier, x: Tensor, y: Tensor, classes: int, seed: int
) -> tuple[Flag, ...]:
    module = classifier.module
    handed_over = check_mode(module)
    before = remember(module)
    classifier = classifier.with_quirks(check_classifier(classifier, x[:2], classes))
    generator = torch.Generator().manual_seed(seed)
    with frozen(classifier) as model:
        asked = (*check_answers(model, x, generator), *check_gradients(model, x, y, seed))
        kept = check_kept(module, before)
    return (*handed_over, *kept, *asked)
