"""Time of `measure` over the time of a bare loop that only forwards as many images.

Both run the same form of the same network in the same micro-batch, in turns: each turn compares one
measurement with the bare loops before and after it, and the median turn counts, so that what else the
machine does cancels out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from networks import CASES, case
from nppr.budget import Budget
from nppr.classifiers import Prepared, prepare
from nppr.data import Data
from nppr.measurement import measure, probe
from nppr.process import keep_freed_memory
from nppr.sources import Gaussian, Laplace, Source, Uniform

TURNS = 21


def bare_loop(classifier: Prepared, batches: Sequence[torch.Tensor]) -> float:
    """Seconds to forward images that lie ready in memory."""
    start = time.perf_counter()
    with classifier.frozen() as models, torch.inference_mode():
        for batch in batches:
            models.fast.logits(batch)
    return time.perf_counter() - start


def ratios(source: Source, classifier: Prepared, data: Data, draws: int) -> list[float]:
    """The ratio of each turn, smallest first."""
    clean = data.evaluate.labels >= 0
    images, _ = data.evaluate.batch(np.arange(len(data.evaluate)))
    batches = images.repeat(draws, 1, 1, 1).split(classifier.micro_batch)
    before = bare_loop(classifier, batches)
    found = []
    for _ in range(TURNS):
        start = time.perf_counter()
        measure(source, classifier, data.evaluate, draws=draws, clean_correct=clean)
        ours = time.perf_counter() - start
        after = bare_loop(classifier, batches)
        found.append(ours / (0.5 * (before + after)))
        before = after
    return sorted(found)


def main() -> None:
    """Print a ratio for each network and noise."""
    keep_freed_memory()  # as the command line does
    print(f"time of measure / time of a bare forward loop, median of {TURNS} turns, target <= 1.10")
    for name in CASES:
        classifier, data = case(name)
        ready = prepare(classifier, probe(data.evaluate), classes=data.classes)
        for noise in (Gaussian, Uniform, Laplace):
            source = noise(Budget.linf("8/255"))
            found = ratios(source, ready, data, draws=32 if name == "digits" else 16)
            form = " + ".join(ready.form) or "as given"
            quartiles = f"{found[TURNS // 4]:.2f}-{found[-TURNS // 4]:.2f}"
            print(
                f"  {name:13s} {source.name:9s} {statistics.median(found):.3f}   (middle half"
                f" {quartiles}, micro-batch {ready.micro_batch}, {form})"
            )


if __name__ == "__main__":
    main()
