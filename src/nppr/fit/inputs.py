"""The inputs a search works on: those right without noise, with their features, found once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.classifiers import Classifier, FrozenClassifier, Prepared, frozen
from nppr.data import Part
from nppr.data.subset import stratified_order
from nppr.distributed import gathered, joined, span, together
from nppr.errors import DataError
from nppr.types import IntArray, Split

__all__ = ["Found", "find"]

IN_MEMORY = 2**29
"""Bytes of images that are kept in memory; more are read from the data at every step."""

S = TypeVar("S", bound=Split)


@dataclass(frozen=True, eq=False)
class Found(Generic[S]):
    """The inputs of a part that are right without noise.

    `features` `(N, F)` are empty where the noise sees none; `calls` counts the forward passes it took
    to find them.
    """

    part: Part[S]
    features: Tensor
    images: Tensor | None
    calls: int

    def __len__(self) -> int:
        return len(self.part)

    def batch(self, positions: IntArray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Images `(B, C, H, W)` and labels `(B,)`."""
        if self.images is None:
            x, y = self.part.batch(positions)
        else:
            x = self.images[torch.from_numpy(positions)]
            y = torch.from_numpy(self.part.labels[positions])
        return x.to(device), y.to(device)

    def seen(self, positions: IntArray, device: torch.device) -> Tensor | None:
        """Features `(B, F)`, or None where there are none."""
        if not self.features.shape[1]:
            return None
        return self.features[torch.from_numpy(positions)].to(device)

    def known(self) -> dict[int, Tensor] | None:
        """Features by dataset index, or None where there are none."""
        if not self.features.shape[1]:
            return None
        return dict(zip(self.part.indices.tolist(), self.features, strict=True))

    def limited(self, inputs: int, seed: int) -> Found[S]:
        """A seeded subset, stratified by class; a smaller one lies inside a larger one."""
        order = stratified_order(self.part.labels, self.part.indices, seed)
        keep = np.sort(order[:inputs])
        rows = torch.from_numpy(keep)
        return Found(
            replace(self.part, indices=self.part.indices[keep], labels=self.part.labels[keep]),
            self.features[rows],
            None if self.images is None else self.images[rows],
            self.calls,
        )


def find(
    classifier: Prepared,
    part: Part[S],
    *,
    features: bool,
    feature_model: Classifier | None = None,
    quantise: bool = False,
    keep_images: bool = False,
) -> Found[S]:
    """Run every input once: which are right, and what their features are.

    Several ranks divide the micro-batches; each reads the images it keeps by itself.
    """
    size, everything = classifier.micro_batch, np.arange(len(part))
    batches = np.split(everything, everything[size::size])
    own = span(len(batches))
    images: list[Tensor] = []
    found: list[tuple[Tensor, Tensor]] = []
    with together():
        with classifier.frozen(quantise=quantise) as models, torch.inference_mode():
            for number, positions in enumerate(batches):
                if number not in own and not keep_images:
                    continue
                x, y = part.batch(positions)
                if keep_images:
                    images.append(x)
                    keep_images = sum(each.nbytes for each in images) <= IN_MEMORY
                    if not keep_images:
                        images.clear()
                if number in own:
                    x, y = x.to(classifier.device), y.to(classifier.device)
                    found.append(_look(models.fast, x, y, features, feature_model))
            calls = models.fast.calls
            if features and feature_model is not None:
                calls += sum(len(correct) for correct, _ in found)
        calls = sum(gathered(calls))
        right, seen = (joined([each[i] for each in found], classifier.device) for i in (0, 1))
    keep = np.flatnonzero(right.cpu().numpy())
    if not len(keep):
        raise DataError(
            f"the {part.kind.name} part must hold at least one input that is right without noise,"
            " got none. Check the classifier, its normalisation and the labels."
        )
    kept = replace(part, indices=part.indices[keep], labels=part.labels[keep])
    rows = torch.from_numpy(keep)
    return Found(kept, seen.cpu(), torch.cat(images)[rows] if keep_images else None, calls)


def _look(
    model: FrozenClassifier, x: Tensor, y: Tensor, features: bool, feature_model: Classifier | None
) -> tuple[Tensor, Tensor]:
    """Which of the inputs are right, `(B,)`, and the features of those that are."""
    seen, logits = model.features_and_logits(x, wanted=features and feature_model is None)
    if features and feature_model is not None:
        with frozen(feature_model) as other:
            seen = other.features(x)
    correct = logits.argmax(1) == y
    return correct, seen[correct]
