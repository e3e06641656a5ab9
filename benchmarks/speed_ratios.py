"""Speed of fitting and measuring over that of bare loops through the same network.

A bare loop only runs the network on images that lie ready in memory, in eager PyTorch and 32-bit
floats, in the form and micro-batch in which that is fastest. What is compared takes turns: each turn is
divided by the mean of the bare loops before and after it, and the median turn counts, so that what
else the machine does cancels out. The residual network is untrained and no answer of it is close:
`long_run.py` measures a real one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from networks import case, untrained
from nppr.core.budget import Budget
from nppr.core.tally import Fit
from nppr.data import Data
from nppr.errors import ClassifierError
from nppr.measuring.measurement import measure, probe
from nppr.models import (
    SPEEDUPS,
    Classifier,
    PreparedClassifier,
    frozen,
    prepare,
    prepare_for_search,
)
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.search import Recipe
from nppr.search.fitting import FitState, Fitting, fit, soft_margin
from nppr.search.selection import CleanInputs
from nppr.sources import Source, Uniform
from nppr.sources.learned import Learned
from nppr.sources.per_input_noise import PerInputNoise
from nppr.system.process import keep_freed_memory
from nppr.system.specs import BFLOAT16, EAGER

TURNS = 11
INPUTS, DRAWS = 64, 16
PER_INPUT_CALLS = 20
BUDGET = Budget.linf("8/255")
NAMES = ("digits", "resnet20")
RUNGS = (Dependency.INDEPENDENT, Dependency.JOINT)
Batches = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Bench:
    """A network, its data, and the forms in which it measures and searches."""

    name: str
    data: Data
    eager: PreparedClassifier
    screened: PreparedClassifier
    search: PreparedClassifier
    fastest: PreparedClassifier
    """Of all forms and micro-batches the one with the fastest forward and backward passes."""

    @classmethod
    def of(cls, name: str) -> Bench:
        """The digits classifier, or a random network of this name."""
        classifier, data = case(name) if name == "digits" else untrained(name, 960)
        examples = probe(data.evaluate)
        prepared = partial(prepare, classifier, examples, classes=data.classes)
        eager = prepared(engine=EAGER)
        search = prepare_for_search(eager, examples)
        forms = [
            prepared(micro_batch=size, speedups=speedups, engine=EAGER)
            for size in (32, 64, 128)
            for speedups in ((), SPEEDUPS)
        ]
        batches = [batches_of(data, each.micro_batch) for each in forms]
        times = [
            min(backward_loop(each, some) for _ in range(3))
            for each, some in zip(forms, batches, strict=True)
        ]
        try:
            screened = prepared(engine=BFLOAT16)
        except ClassifierError:  # the processor has no 16-bit floats
            screened = eager
        return cls(name, data, eager, screened, search, forms[times.index(min(times))])


def batches_of(data: Data, size: int, number: int = 256) -> Batches:
    """Images and labels in micro-batches."""
    split = data.fit
    x, y = split.batch(np.arange(len(split)))
    copies = -(-number // len(x))
    x, y = x.repeat(copies, 1, 1, 1)[:number], y.repeat(copies)[:number]
    return list(zip(x.split(size), y.split(size), strict=True))


def backward_loop(
    classifier: PreparedClassifier, batches: Batches, *, rough: bool = False
) -> float:
    """Seconds to forward and backward micro-batches, with the gradient in the images only."""
    start = time.perf_counter()
    with classifier.frozen() as models:
        for x, y in batches:
            models.fast.gradient(lambda logits, y=y: soft_margin(logits, y, 1.0), x, rough=rough)  # type: ignore[misc]
    return time.perf_counter() - start


def forward_loop(classifier: PreparedClassifier, batches: Sequence[Tensor]) -> float:
    """Seconds to forward micro-batches, in 16-bit floats if the classifier is screened."""
    start, screening = time.perf_counter(), classifier.screening
    with classifier.frozen() as models, torch.inference_mode():
        for batch in batches:
            if screening is None:
                models.fast.logits(batch)
            else:
                screening.logits(models.fast, batch, len(batch))
    return time.perf_counter() - start


def fit_speeds(bench: Bench) -> Iterator[tuple[str, list[float]]]:
    """Images per second of a fit over those of bare loops, by rung."""
    recipe = Recipe(inputs=256)
    batches = batches_of(bench.data, bench.fastest.micro_batch, recipe.inputs)
    for rung in RUNGS:
        inputs = inputs_of(bench.search, bench.data)
        state = FitState.start(new_law(bench.data, rung, inputs.features.shape[1]), recipe)

        def step(state: FitState = state, inputs: CleanInputs[Fit] = inputs) -> float:
            work = Fitting("bench", bench.search, inputs, BUDGET, recipe, state.number + 1, 0)
            start = time.perf_counter()
            fit(work, state)
            return time.perf_counter() - start

        step()
        yield rung.value, ratios(lambda: backward_loop(bench.fastest, batches), step)


def measuring_times(
    bench: Bench, classifier: PreparedClassifier
) -> Iterator[tuple[str, list[float]]]:
    """Time of measuring over that of a bare loop of as many passes, by rung."""
    split = bench.data.evaluate
    some = replace(split, indices=split.indices[:INPUTS], labels=split.labels[:INPUTS])
    clean = np.ones(len(some), bool)
    x, y = some.batch(np.arange(len(some)))
    images = x.repeat(DRAWS, 1, 1, 1).split(bench.eager.micro_batch)
    sources: dict[str, Source] = {"uniform": Uniform(BUDGET)}
    with classifier.frozen() as models, torch.inference_mode():
        features = models.fast.features(x).clone()
    known = dict(zip(some.indices.tolist(), features.unbind(), strict=True))
    for rung in RUNGS:
        law = new_law(bench.data, rung, features.shape[1])
        sources[rung.value] = Learned(BUDGET, law, known=known)
    parent = sources[Dependency.JOINT.value]
    assert isinstance(parent, Learned)
    sources["per-input"] = PerInputNoise(parent, PER_INPUT_CALLS)
    size = bench.fastest.micro_batch
    steps = list(zip(x.split(size), y.split(size), strict=True)) * PER_INPUT_CALLS
    for name, source in sources.items():

        def bare(source: Source = source) -> float:
            more = backward_loop(bench.fastest, steps) if source.search_passes(1) else 0.0
            return forward_loop(bench.eager, images) + more

        def ours(source: Source = source) -> float:
            if isinstance(source, PerInputNoise):
                source = replace(source)
            start = time.perf_counter()
            measure(source, classifier, some, draws=DRAWS, clean_correct=clean)
            return time.perf_counter() - start

        yield name, ratios(ours, bare)


def new_law(data: Data, rung: Dependency, features: int) -> Distribution:
    """Noise that nothing was fitted for."""
    family = Family(rung, components=7)
    return Distribution(family, BUDGET.domain(data.shape), data.classes, features)


def inputs_of(classifier: PreparedClassifier, data: Data) -> CleanInputs[Fit]:
    """All images as inputs of a fit, whatever the network answers."""
    images, _ = data.fit.batch(np.arange(len(data.fit)))
    with classifier.frozen() as models, torch.inference_mode():
        features = models.fast.features(images)
    return CleanInputs(data.fit, features.clone(), images, 0)


def ratios(above: Callable[[], float], below: Callable[[], float]) -> list[float]:
    """Ratios of two times, each against the mean of its neighbours, smallest first."""
    above()
    before = below()
    found = []
    for _ in range(TURNS):
        ours = above()
        after = below()
        found.append(ours / (0.5 * (before + after)))
        before = after
    return sorted(found)


def matrix_speed() -> float:
    """Floating-point operations per second of the fastest product of large matrices.

    It is tried as a product and as a convolution, which another library computes.
    """
    a = torch.rand(1024, 1024)
    images, weight = (
        torch.rand(shape).contiguous(memory_format=torch.channels_last)
        for shape in ((32, 64, 32, 32), (64, 64, 3, 3))
    )
    speeds = []
    for _ in range(3 * TURNS):
        start = time.perf_counter()
        torch.mm(a, a)
        between = time.perf_counter()
        torch.conv2d(images, weight, padding=1)
        speeds.append(2 * 1024**3 / (between - start))
        speeds.append(2 * weight.numel() * 32**3 / (time.perf_counter() - between))
    return max(speeds)


def operations(classifier: Classifier, x: Tensor) -> float:
    """Floating-point operations of a forward pass of one image."""
    with frozen(classifier) as model, torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(x)
    return float(counter.get_total_flops()) / len(x)


def median_and_spread(found: Sequence[float]) -> str:
    """The median, and where the middle half lies."""
    middle = f"{found[len(found) // 4]:.2f}-{found[-1 - len(found) // 4]:.2f}"
    return f"{statistics.median(found):.3f}   (middle half {middle})"


def main() -> None:
    """Print every ratio for every network."""
    keep_freed_memory()  # as the command line does
    print(f"medians of {TURNS} turns, {torch.get_num_threads()} threads")
    for name in NAMES:
        bench = Bench.of(name)
        form = " + ".join(bench.eager.speedups)
        print(f"{name}: measures in {form}, micro-batch {bench.eager.micro_batch}")
        print("  speed of a fit / of the bare forward-backward loop (target >= 0.95)")
        for rung, found in fit_speeds(bench):
            print(f"    {rung:45s} {median_and_spread(found)}", flush=True)
        print("  time of measuring / of the bare loop")
        for rung, found in measuring_times(bench, bench.eager):
            print(f"    {rung:12s} {median_and_spread(found)}", flush=True)
        loops = [
            partial(
                forward_loop, each, [x for x, _ in batches_of(bench.data, each.micro_batch, 512)]
            )
            for each in (bench.screened, bench.eager)
        ]
        found = ratios(*loops)
        print("  time of a bare forward loop in 16-bit / in 32-bit floats")
        print(f"    {bench.screened.engine:12s} {median_and_spread(found)}")
        limit, each = matrix_speed(), operations(bench.eager.original, probe(bench.data.evaluate))
        share = bench.eager.images_per_second * each / limit
        print(
            f"  {bench.eager.images_per_second:,.0f} images per second,"
            f" {100 * share:.0f} % of the limit of 32-bit matrix products"
            f" ({limit / 1e9:.0f} GFLOP/s)"
        )


if __name__ == "__main__":
    main()
