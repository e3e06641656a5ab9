"""How time and peak memory grow: with inputs and draws, image size, classes, components.

Every line is measured in a process of its own, on a network of one convolution: what grows is nppr.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace

import torch
from torch import nn

import nppr
from nppr.data import Data, from_arrays
from nppr.noise import Dependency, Family
from nppr.search import default_settings
from nppr.system.process import keep_freed_memory

BUDGET = nppr.Budget.linf("8/255")


@dataclass(frozen=True)
class Case:
    """One run; with `calls` noise is fitted first, else Uniform noise is measured."""

    title: str
    inputs: int = 500
    draws: int = 16
    side: int = 32
    classes: int = 10
    components: int = 7
    calls: int = 0
    rung: str = "label"


def cases() -> list[Case]:
    """All lines of the table."""
    sizes = ((1000, 16), (1000, 160), (10_000, 16), (50_000, 100))
    fitted = Case("", calls=3072)
    return [
        *(Case(f"{n:,} inputs x {m} draws", n, m) for n, m in sizes),
        *(Case(f"images of {side} x {side}", side=side) for side in (32, 64, 128, 224)),
        *(
            replace(fitted, title=f"fit, {classes:,} classes", classes=classes)
            for classes in (10, 200, 1000)
        ),
        *(
            replace(
                fitted, title=f"fit, {number} components", components=number, rung="independent"
            )
            for number in (1, 7, 28)
        ),
    ]


def network(classes: int) -> nn.Module:
    """One convolution and a linear layer, for images of any size."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, classes),
    ).eval()  # fmt: skip


def data_of(case: Case, model: nn.Module) -> Data:
    """Random images, labelled by the network."""
    splits = (0.25, 0.25) if case.calls else (0.0, 0.0)
    number = case.inputs * 2 if case.calls else case.inputs
    images = torch.rand(number, 3, case.side, case.side)
    with torch.no_grad():
        labels = torch.cat([model(some).argmax(1) for some in images.split(500)])
    return from_arrays(images, labels, classes=case.classes, shares=splits)


def run(case: Case) -> None:
    """Run a case, then print its seconds and this process's peak memory in megabytes."""
    keep_freed_memory()  # as the command line does
    model = network(case.classes)
    data = data_of(case, model)
    start = time.perf_counter()
    if case.calls:
        family = Family(Dependency(case.rung), components=case.components)
        search = default_settings(family, floors=(0.0,), calls=case.calls)
        search = replace(search, per_input_calls=0)
        nppr.assess(
            model,
            data,
            budget=BUDGET,
            sources="nppr",
            search=search,
            measure=nppr.Measure(draws=case.draws),
        )
    else:
        nppr.assess(
            model, data, budget=BUDGET, sources="uniform", measure=nppr.Measure(draws=case.draws)
        )
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def main() -> None:
    """Print the table."""
    print(f"  {'run':34s} {'seconds':>8s} {'peak MB':>8s}")
    for case in cases():
        command = [sys.executable, __file__, json.dumps(asdict(case))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds, memory = json.loads(done.stdout)
        print(f"  {case.title:34s} {seconds:8.1f} {memory:8.0f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run(Case(**json.loads(sys.argv[1])))
    else:
        main()
