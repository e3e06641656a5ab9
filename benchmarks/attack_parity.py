"""Our PGD beside those of others: APGD-CE of pyautoattack, and PGD of torchattacks where installed.

    python benchmarks/attack_parity.py WEIGHTS DATA [INPUTS]

WEIGHTS are those of a resnet20 for CIFAR-10, DATA a folder with CIFAR-10. AR in %, on the same inputs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

from torch import Tensor, nn

import nppr
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.models import load_classifier
from nppr.sources import PGD, Source
from nppr.sources.custom import CustomAttack
from nppr.system.process import keep_freed_memory

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RADII = ("0.5/255", "1/255")
STEPS, STEP = 20, 0.25

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]


def apgd(budget: Budget) -> Attack:
    """APGD on the cross-entropy as AutoAttack runs it."""
    from pyautoattack.autopgd_base import APGDAttack

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attack = APGDAttack(
            model, n_restarts=1, n_iter=100, eps=budget.radius, norm="Linf", loss="ce", seed=0,
            device=x.device,
        )  # fmt: skip
        found: Tensor = attack.perturb(x, y)
        return found

    return run


def theirs(budget: Budget) -> Attack:
    """PGD of torchattacks with the settings of ours."""
    import torchattacks

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attack = torchattacks.PGD(
            model, eps=budget.radius, alpha=STEP * budget.radius, steps=STEPS, random_start=True
        )
        found: Tensor = attack(x, y)
        return found

    return run


def main(weights: str, data: str, inputs: int) -> None:
    """One line a radius."""
    keep_freed_memory()
    loaded = load_data(data)
    model = load_classifier("resnet20", weights=weights, mean=MEAN, std=STD, data=loaded)
    for radius in RADII:
        budget = Budget.linf(radius)
        sources: list[Source] = [
            PGD(budget, steps=STEPS, step=STEP),
            CustomAttack(budget, apgd(budget), label="apgd-ce"),
        ]
        if importlib.util.find_spec("torchattacks"):
            sources.append(CustomAttack(budget, theirs(budget), label="torchattacks-pgd"))
        report = nppr.assess(
            model, loaded, budget=budget, sources=sources, measure=nppr.Measure(inputs=inputs)
        )
        rows = [report.headline(source.name, Metric.AR) for source in sources]
        found = ", ".join(
            f"{row.source} {100 * row.value:.2f}" for row in rows if row and row.value is not None
        )
        print(f"linf {radius}: {found}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 500)
