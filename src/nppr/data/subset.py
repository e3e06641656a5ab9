"""Orders and splits of inputs that are stratified by class and the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np

from nppr.types import IntArray

__all__ = ["SPLIT_SEED", "THREE_WAY", "stratified_order", "three_way"]

SPLIT_SEED = 0
"""Splits are fixed: they do not depend on the seed of an assessment."""

THREE_WAY = (0.5, 0.2)
"""Shares of fit and select where data come in one part."""


def stratified_order(labels: IntArray, indices: IntArray, seed: int) -> IntArray:
    """Positions in an order of which every prefix has nearly the classes' shares.

    Within a class, inputs are ranked by a hash of (seed, dataset index), which depends on no library's
    random generator; an input of rank r among n is put at r + 1/2 over n of the whole.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> sorted(labels[stratified_order(labels, np.arange(6), seed=0)[:3]].tolist())
    [0, 0, 1]
    """
    scores = np.array([_score(seed, int(index)) for index in indices], dtype=np.float64)
    place = np.empty(len(labels), dtype=np.float64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranks = np.argsort(np.argsort(scores[members], kind="stable"), kind="stable")
        place[members] = (ranks + 0.5) / len(members)
    order: IntArray = np.lexsort((scores, place)).astype(np.int64)
    return order


def three_way(
    labels: IntArray, shares: tuple[float, float], seed: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Disjoint positions for fit, select and evaluate, stratified by class.

    `shares` are those of fit and select; evaluate takes the rest.
    """
    order = stratified_order(labels, np.arange(len(labels)), seed)
    first = round(len(labels) * shares[0])
    second = first + round(len(labels) * shares[1])
    return np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:])


def _score(seed: int, index: int) -> float:
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2.0**64
