"""The time that a run is announced to take, against the time that it takes."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import nppr
from networks import untrained
from nppr.models import Classifier, load_classifier
from nppr.run.progress import Plan
from nppr.system.process import keep_freed_memory

BUDGET = nppr.Budget.linf("8/255")
NOISE = "uniform,pgd"
JOINT = "nppr,uniform"


def exported(classifier: Classifier, folder: Path) -> Path:
    """The network as a program that takes batches of up to 512 images."""
    assert classifier.module is not None
    dynamic = ({0: torch.export.Dim("batch", max=512)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = torch.rand(2, 3, 32, 32)
        program = torch.export.export(classifier.module, (example,), dynamic_shapes=dynamic)
        torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def compare(name: str, model: Any, data: Any, **options: Any) -> None:
    """Print the times of one run; with one thread its processor time is that of an idle machine."""
    plans: list[Plan] = []
    start, used = time.perf_counter(), time.process_time()

    def keep_plan(state: object) -> None:
        if isinstance(state, Plan):
            plans.append(state)

    nppr.assess(model, data, progress=keep_plan, **options)
    taken, used = time.perf_counter() - start, time.process_time() - used
    told = plans[0].seconds
    line = f"  {name:38s} {told:8.1f} s {taken:8.1f} s {used:8.1f} s   {told / used:5.2f}"
    print(line, flush=True)


def main() -> None:
    """Print a line for each run."""
    keep_freed_memory()  # as the command line does
    header = f"  {'run':38s} {'announced':>10s} {'taken':>10s} {'processor':>10s}"
    print(f"{header}   announced / processor (target 0.5 to 2)")
    compare("digits, uniform and pgd", "digits-cnn", "digits", sources=NOISE)
    compare("digits, everything by default", "digits-cnn", "digits")
    few: dict[str, Any] = {"budget": BUDGET, "measure": nppr.Measure(draws=16)}
    network, data = untrained("resnet20", 1000)
    compare("resnet20, uniform and pgd", network, data, budget=BUDGET, sources=NOISE)
    compare(
        "resnet20, fits to joint", network, data,
        sources=JOINT, search=nppr.Search(dependency="joint", floor=(0,), calls=6144), **few,
    )  # fmt: skip
    compare(
        "resnet20, fits to per-input", network, data,
        sources=JOINT, search=nppr.Search(floor=(0,), calls=6144), **few,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        program = load_classifier(str(exported(network, Path(folder))), data=data)
        compare("resnet20.pt2, uniform and pgd", program, data, budget=BUDGET, sources=NOISE)
        compare(
            "resnet20.pt2, fits to independent", program, data,
            sources=JOINT,
            search=nppr.Search(dependency="independent", floor=(0,), calls=6144), **few,
        )  # fmt: skip
    network, data = untrained("resnet18", 40, side=224)
    compare(
        "resnet18 at 224, uniform", network, data,
        budget=BUDGET, sources="uniform", measure=nppr.Measure(draws=50),
    )  # fmt: skip
    compare(
        "resnet18 at 224, fits to independent", network, data,
        sources=JOINT,
        search=nppr.Search(dependency="independent", floor=(0,), calls=256), **few,
    )  # fmt: skip


if __name__ == "__main__":
    main()
