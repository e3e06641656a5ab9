"""Time of `measure` over the time of a bare loop that only forwards as many images.

Both run the same form of the same network in the same micro-batch, in turns, and the best time of
each counts: a machine can be slower than it is, never faster.
"""

from __future__ import annotations

import time

import torch

from networks import CASES, case
from nppr.budget import Budget
from nppr.classifiers import Prepared, prepare
from nppr.measure import measure, probe
from nppr.sources import SOURCES

TURNS = 15
TARGET = 1.10


def bare_loop(classifier: Prepared, batch: torch.Tensor, images: int) -> float:
    """Seconds to forward `images` images."""
    start = time.perf_counter()
    with classifier.frozen() as models, torch.inference_mode():
        for _ in range(images // len(batch)):
            models.fast.logits(batch)
        if images % len(batch):
            models.fast.logits(batch[: images % len(batch)])
    return time.perf_counter() - start


def main() -> None:
    """Print a ratio for each network and noise."""
    print(f"time of measure / time of a bare forward loop (target <= {TARGET:.2f})")
    for name in CASES:
        classifier, data = case(name)
        examples = probe(data.evaluate)
        ready = prepare(classifier, examples, classes=data.classes)
        copies = -(-ready.micro_batch // len(examples))
        batch = examples.repeat(copies, 1, 1, 1)[: ready.micro_batch]
        draws = 32 if name == "digits" else 16
        clean = data.evaluate.labels >= 0
        for noise in ("gaussian", "uniform", "laplace"):
            source = SOURCES[noise](Budget.linf("8/255"))
            ours, bare = [], []
            for _ in range(TURNS):
                start = time.perf_counter()
                measure(source, ready, data.evaluate, draws=draws, clean_correct=clean)
                ours.append(time.perf_counter() - start)
                bare.append(bare_loop(ready, batch, draws * len(data.evaluate)))
            form = " + ".join(ready.form) or "as given"
            speed = draws * len(data.evaluate) / min(bare)
            print(
                f"  {name:13s} {noise:9s} {min(ours) / min(bare):.3f}"
                f"   ({speed:,.0f} images/s bare, micro-batch {ready.micro_batch}, {form})"
            )


if __name__ == "__main__":
    main()
