"""Is this a classifier of these inputs, and what care does its model need?"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from nppr.classifiers.wrap import Classifier, Quirks, frozen
from nppr.errors import ClassifierError

__all__ = ["check_classifier", "check_finite"]

logger = logging.getLogger(__name__)


def check_classifier(classifier: Classifier, x: Tensor, classes: int) -> Quirks:
    """Raise `ClassifierError` unless the model gives `classes` finite logits for inputs like `x`.

    What care the model needs is found on the way.
    """
    pair = x[:1].expand(2, *x.shape[1:]) if len(x) == 1 else x
    with frozen(classifier) as model, torch.no_grad():
        seen = pair.clone()
        logits = model.logits(seen)
    if logits.shape[1] != classes:
        raise ClassifierError(
            f"`model` must return one logit per class, expected {classes} classes,"
            f" got {logits.shape[1]}. Check the model and its weights; for labels that do not show all"
            " classes, give nppr.from_arrays(images, labels, classes=...)."
        )
    check_finite(logits, classifier.name)
    normalises = classifier.mean is not None or classifier.std is not None
    return Quirks(
        in_place=not normalises and not torch.equal(seen, pair),
        needs_two=not _takes_one(classifier, x[:1]),
    )


def _takes_one(classifier: Classifier, x: Tensor) -> bool:
    """Whether a model that takes several images takes a single one too."""
    try:
        with frozen(classifier) as model, torch.no_grad():
            model.logits(x.clone())
    except ClassifierError as error:
        logger.debug("%s does not take a single image: %s", classifier.name, error)
        return False
    return True


def check_finite(logits: Tensor, name: str) -> None:
    """Raise `ClassifierError` on NaN or infinite logits."""
    if not bool(torch.isfinite(logits).all()):
        raise ClassifierError(
            f"`model` must return finite logits, got NaN or Inf from {name!r}."
            " Check the weights and the normalisation."
        )
