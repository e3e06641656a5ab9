"""A long measurement, preparation included, over a bare loop of as many passes in eager PyTorch.

    python benchmarks/long_run.py --model resnet20 --weights W --data D --eps 8/255 --seconds 120

The bare loop only runs the network, in 32-bit floats, on images that lie ready in memory, in the
fastest variant and micro-batch of eager PyTorch. It takes turns with the measurement, so that what
else the machine does cancels out. Every draw is measured in eager PyTorch too: the counts must not
differ.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.measuring.measurement import measure, probe
from nppr.models import SPEEDUPS, load_classifier, prepare
from nppr.sources import parse_sources
from nppr.system.process import keep_freed_memory
from nppr.system.specs import EAGER, ENGINES
from speed_ratios import forward_loop

TURNS = 11
BARE_IMAGES = 2048
"""Images that one turn of the bare loop goes through; its time is scaled."""


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="digits-cnn")
    parser.add_argument("--weights")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--eps", default="8/255")
    parser.add_argument("--source", default="uniform")
    parser.add_argument("--engine", default=ENGINES[0], choices=ENGINES)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the bare loop, at least")
    options = parser.parse_args()
    keep_freed_memory()  # as the command line does
    data = load_data(options.data)
    classifier = load_classifier(options.model, weights=options.weights, data=data)
    (source,) = parse_sources(options.source, Budget.linf(options.eps))
    split, examples = data.evaluate, probe(data.evaluate)
    bare = max(
        (
            prepare(
                classifier,
                examples,
                classes=data.classes,
                micro_batch=size,
                speedups=speedups,
                engine=EAGER,
            )
            for size in (32, 64, 128)
            for speedups in ((), SPEEDUPS)
        ),
        key=lambda each: each.images_per_second,
    )
    passes = 1.2 * options.seconds * bare.images_per_second
    inputs = min(len(split), 10_000) // TURNS
    draws = int(passes / TURNS / inputs) + 1
    start = time.perf_counter()
    ours = prepare(classifier, examples, classes=data.classes, engine=options.engine)
    preparation = time.perf_counter() - start
    images = examples.repeat(-(-BARE_IMAGES // len(examples)), 1, 1, 1)[:BARE_IMAGES]
    batches = images.split(bare.micro_batch)
    clean = np.ones(inputs, bool)
    taken, loop, differing = 0.0, 0.0, 0
    before = forward_loop(bare, batches)
    for turn in range(TURNS):
        rows = slice(turn * inputs, (turn + 1) * inputs)
        some = replace(split, indices=split.indices[rows], labels=split.labels[rows])
        start = time.perf_counter()
        found = measure(source, ours, some, draws=draws, clean_correct=clean)
        own = time.perf_counter() - start
        after = forward_loop(bare, batches)
        loop += 0.5 * (before + after) / BARE_IMAGES * inputs * draws
        taken += own
        exact = measure(source, bare, some, draws=draws, clean_correct=clean)
        differing += int(np.abs(found.correct - exact.correct).sum())
        before = forward_loop(bare, batches)
        print(f"  turn {turn + 1}: {taken:.1f} s over {loop:.1f} s", flush=True)
    total = TURNS * inputs * draws
    speedups = " + ".join((*bare.speedups, f"micro-batch {bare.micro_batch}"))
    print(f"{source.name}, {total:,} draws of {TURNS * inputs:,} inputs, engine {ours.engine}")
    print(f"bare loop ({speedups}): {loop:.1f} s; preparation {preparation:.1f} s, {taken:.1f} s")
    print(f"ratio with preparation {(taken + preparation) / loop:.3f}, without {taken / loop:.3f}")
    print(f"counts of correct draws differ by {differing:,} in {total:,} draws")


if __name__ == "__main__":
    main()
