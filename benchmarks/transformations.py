"""The worst law of a transformation beside plain scans of its box, and what the transformation costs.

    python benchmarks/transformations.py                     # digits-cnn
    python benchmarks/transformations.py --weights resnet20.safetensors --data CIFAR10 --inputs 500

For each box of one parameter, on the evaluated inputs: PR under uniform parameters, the rung
`independent` beside the best of 1,000 random values (`--random`), the rung `per-input` beside a grid of
201 values, and for the first box what holds at least for a density ratio of 5 beside the worst fifth.
Then the time of measuring a rotation over that of bare forward passes, both sides in turn, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

import nppr
from nppr.core.budget import Budget, perturbed
from nppr.core.tally import BoolArray, FloatArray
from nppr.data import Data
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, prepare
from nppr.report.number import split_intervals
from nppr.sources import Bound, Uniform

GRID, TURNS = 201, 11
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BOXES = (
    "rotate=30",
    "shift-x=0.2",
    "scale=0.3",
    "blur=1",
    "exposure=1",
    "contrast=0.5",
    "haze=0.5",
)


def answers(classifier: Classifier, data: Data, budget: Budget, points: FloatArray) -> BoolArray:
    """Whether each clean-correct input is correct at each point of [-1, 1], `(N, G)`: a plain loop."""
    x, y = data.evaluate.batch(np.arange(len(data.evaluate)))
    ready = prepare(classifier, probe(data.evaluate), classes=data.classes)
    with ready.frozen() as models, torch.inference_mode():

        def correct(images: torch.Tensor) -> torch.Tensor:
            found = [models.fast.logits(batch) for batch in images.split(ready.micro_batch)]
            return torch.cat(found).argmax(1) == y

        keep = correct(x)
        rows = [
            correct(perturbed(x, torch.full((len(x), 1, 1, 1), u), budget))[keep]
            for u in points.tolist()
        ]
    found: BoolArray = torch.stack(rows, 1).numpy()
    return found


def compare(classifier: Classifier, data: Data, box: str, draws: int, tried: int) -> None:
    """One line: what the ladder finds, and what scans of the same inputs find."""
    budget = Budget.box(box)
    report = nppr.assess(
        classifier,
        data,
        budget=budget,
        sources="nppr,uniform,scan",
        measure=nppr.Measure(draws=draws),
    )
    values = {rung.name: 100 * rung.value for rung in report.ladder}
    uniform = next(row.value for row in report.numbers if row.source == "uniform")
    random = np.random.default_rng(0).uniform(-1, 1, tried)
    shared = 100 * answers(classifier, data, budget, random).mean(0)
    grid = answers(classifier, data, budget, np.linspace(-1, 1, GRID))
    fifth = np.sort(shared)[: tried // 5].mean()
    print(
        f"{box:14} uniform {100 * (uniform or 0):5.1f}"
        f"  independent {values['nppr:independent']:5.1f} (best of {tried:,}: {shared.min():5.1f})"
        f"  label {values['nppr:label']:5.1f}  joint {values['nppr:joint']:5.1f}"
        f"  per-input {values['nppr:per-input']:5.1f} (grid of {GRID}: {100 * grid.all(1).mean():5.1f})"
        f"  worst fifth {fifth:5.1f}",
        flush=True,
    )


def bound(classifier: Classifier, data: Data, box: str, patterns: int) -> None:
    """What holds at least for every law of at most 5 times the uniform density."""
    budget = Budget.box(box)
    sources = [Bound(budget, ratio="5"), Bound(budget, ratio="5", patterns=patterns)]
    report = nppr.assess(
        classifier, data, budget=budget, sources=sources, measure=nppr.Measure(draws=100)
    )
    for row in report.numbers:
        if row.bound is not None:
            sees = "may see" if row.bound.sees_input else "does not see"
            for part in split_intervals(row):
                print(f"{box}: ratio 5, the law {sees} the input, {part.intervals[0].claim}:"
                      f" {row.metric.value} {100 * (part.value or 0.0):.1f}")  # fmt: skip


def overhead(classifier: Classifier, data: Data) -> None:
    """Measuring under a rotation over bare forward passes of as many images."""
    split, source = data.evaluate, Uniform(Budget.box("rotate=30"))
    ready = prepare(classifier, probe(split), classes=data.classes)
    x, _ = split.batch(np.arange(len(split)))
    draws, clean = 4, np.ones(len(split), bool)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        start = time.perf_counter()
        measure(source, ready, split, draws=draws, clean_correct=clean)
        times[0].append(time.perf_counter() - start)
        start = time.perf_counter()
        with ready.frozen() as models, torch.inference_mode():
            for batch in x.repeat(draws, 1, 1, 1).split(ready.micro_batch):
                models.fast.logits(batch)
        times[1].append(time.perf_counter() - start)
    ours, bare = map(statistics.median, times)
    print(
        f"measuring a rotation / bare forward passes: {ours / bare:.2f} ({ours:.2f} s, {bare:.2f} s)"
    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--weights", help="resnet20 weights; default: digits-cnn")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--draws", type=int, default=32)
    parser.add_argument("--random", type=int, default=1000)
    parser.add_argument("--boxes", default=",".join(BOXES))
    given = parser.parse_args()
    data = nppr.load_data(given.data)
    if given.inputs:
        data = data.limit(inputs=given.inputs)
    if given.weights:
        classifier = nppr.load_classifier(
            "resnet20", weights=given.weights, mean=MEAN, std=STD, data=data
        )
    else:
        classifier = nppr.load_classifier("digits-cnn")
    for box in given.boxes.split(","):
        compare(classifier, data, box, given.draws, given.random)
    bound(classifier, data, given.boxes.split(",")[0], given.random)
    overhead(classifier, data)


if __name__ == "__main__":
    main()
