"""Speed and memory of fitting, and the speed of measuring learned noise.

All are ratios within one run: what is compared takes turns, and the median turn counts.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from networks import case
from nppr.budget import Budget
from nppr.classifiers import Prepared, prepare
from nppr.data import Data
from nppr.measurement import measure, probe
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.process import keep_freed_memory
from nppr.search import Recipe
from nppr.search.fitting import FitState, Fitting, fit, margin
from nppr.search.selection import CleanInputs
from nppr.sources import Clean, Uniform
from nppr.sources.learned import Learned
from nppr.tally import Fit

TURNS = 11
BUDGET = Budget.linf("8/255")
NAME = "resnet20"


def bare_loop(classifier: Prepared, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Seconds to forward and backward micro-batches, with the gradient in the images only."""
    start = time.perf_counter()
    with classifier.frozen() as models:
        for x, y in batches:
            models.fast.gradient(lambda logits, y=y: margin(logits, y, 1.0), x)  # type: ignore[misc]
    return time.perf_counter() - start


def inputs_of(classifier: Prepared, data: Data) -> CleanInputs[Fit]:
    """All images as inputs of a fit, whatever the random network answers."""
    images, _ = data.fit.batch(np.arange(len(data.fit)))
    with classifier.frozen() as models, torch.inference_mode():
        features = models.fast.features(images)
    return CleanInputs(data.fit, features.clone(), images, 0)


def stage(inputs: CleanInputs[Fit], family: Family, recipe: Recipe) -> FitState:
    """A fresh fit."""
    made = Distribution(family, (3, 32, 32), 10, inputs.features.shape[1])
    return FitState.start(made, recipe)


def fitting_ratio(classifier: Prepared, data: Data, dependency: Dependency) -> list[float]:
    """Images per second of a fit over those of a bare loop, smallest first."""
    recipe = Recipe(inputs=256)
    inputs = inputs_of(classifier, data)
    state = stage(inputs, Family(dependency, components=7), recipe)
    x, y = inputs.batch(np.arange(len(inputs)), classifier.device)
    x, y = x[: recipe.inputs], y[: recipe.inputs]
    size = classifier.micro_batch
    batches = list(zip(x.split(size), y.split(size), strict=True))

    def step() -> float:
        work = Fitting("bench", classifier, inputs, BUDGET, recipe, state.number + 1, 0)
        start = time.perf_counter()
        fit(work, state)
        return time.perf_counter() - start

    step()
    return ratios(lambda: bare_loop(classifier, batches), step)


def measuring_ratio(classifier: Prepared, data: Data, dependency: Dependency) -> list[float]:
    """Time of measuring learned noise over that of Uniform noise, smallest first.

    Both times are those of an assessment: a pass without noise, whose features learned noise may see,
    and then the draws.
    """
    inputs = inputs_of(classifier, data)
    made = stage(inputs, Family(dependency, components=7), Recipe()).distribution
    clean = data.evaluate.labels >= 0

    def seconds(source: Learned | Uniform) -> float:
        seen: dict[int, torch.Tensor] = {}
        start = time.perf_counter()
        keep = seen if isinstance(source, Learned) and made.features else None
        measure(Clean(), classifier, data.evaluate, clean_correct=clean, keep=keep)
        if isinstance(source, Learned):
            source = replace(source, known=seen)
        measure(source, classifier, data.evaluate, draws=16, clean_correct=clean)
        return time.perf_counter() - start

    return ratios(lambda: seconds(Learned(BUDGET, made)), lambda: seconds(Uniform(BUDGET)))


def ratios(above: Callable[[], float], below: Callable[[], float]) -> list[float]:
    """Ratios of two times, each against the mean of its neighbours."""
    before = below()
    found = []
    for _ in range(TURNS):
        ours = above()
        after = below()
        found.append(ours / (0.5 * (before + after)))
        before = after
    return sorted(found)


def fit_once(inputs: int, draws: int) -> None:
    """Two steps of a fit, then print this process's peak memory."""
    classifier, data = ready()
    recipe = Recipe(inputs=inputs, draws=draws)
    found = inputs_of(classifier, data)
    state = stage(found, Family(Dependency.INDEPENDENT, components=7), recipe)
    fit(Fitting("bench", classifier, found, BUDGET, recipe, 2, 0), state)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak(inputs: int, draws: int) -> int:
    """Peak memory in kilobytes of a process that takes such steps."""
    command = [sys.executable, __file__, str(inputs), str(draws)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ready() -> tuple[Prepared, Data]:
    """The network and its images, some to fit on and some to measure on."""
    classifier, data = case(NAME, fit=True)
    forms = ("folded", "channels_last")
    examples = probe(data.evaluate)
    return prepare(classifier, examples, classes=10, micro_batch=64, form=forms), data


def main() -> None:
    """Print the three figures."""
    keep_freed_memory()  # as the command line does
    classifier, data = ready()
    print("images per second of a fit / of a bare forward-backward loop (target >= 0.90)")
    for dependency in (Dependency.INDEPENDENT, Dependency.JOINT):
        print(
            f"  {NAME} {dependency.value:12s} {_spread(fitting_ratio(classifier, data, dependency))}"
        )
    print("time of measuring NPPR / PR under Uniform noise, 16 draws (target <= 1.10)")
    for dependency in (Dependency.INDEPENDENT, Dependency.JOINT):
        print(
            f"  {NAME} {dependency.value:12s} {_spread(measuring_ratio(classifier, data, dependency))}"
        )
    small, large = peak(64, 1), peak(256, 32)
    print("peak memory of a step of 256 inputs x 32 draws / of 64 x 1 (target <= 1.30)")
    print(f"  {NAME} {large / small:.3f}   ({small / 1024:.0f} MB at 64 x 1)")


def _spread(found: list[float]) -> str:
    middle = f"{found[TURNS // 4]:.2f}-{found[-TURNS // 4]:.2f}"
    return f"{statistics.median(found):.3f}   (middle half {middle})"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        fit_once(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
