"""AutoAttack (Croce and Hein, 2020) through pyautoattack, the reference's code as a package."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, Metric
from nppr.errors import SpecError
from nppr.sources.base import Guidance, Source

if TYPE_CHECKING:
    from torch import Tensor


TARGETS = 9
"""Classes that the standard version aims at."""

PARTS = {"apgd-ce": 2, "apgd-t": 4, "fab-t": 2, "square": 2}
"""Classes that each part needs: the loss of targeted APGD reads the four largest logits."""


@dataclass(frozen=True)
class AutoAttack(Source, kind="autoattack"):
    """The standard version: APGD-CE, targeted APGD, targeted FAB, Square.

    `batch` images go through an attack together, independent of the micro-batch, because its random
    numbers depend on them; its seed is the run's. With fewer than ten classes it aims at all others;
    with fewer than four, targeted APGD is left out.
    """

    metric = Metric.AR
    guidance = Guidance.MORE
    fixed_draws = 1
    transforms = False
    needs_classes = True
    is_thorough = True
    cost = 1000.0  # per input, about: 300 where the first part breaks it, 9,000 where nothing does
    inputs_at_once = 1000  # up to this many, the result is that of pyautoattack on all of them

    budget: Budget
    batch: int = 100

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise SpecError(f"`batch` must be a whole number >= 1, got {self.batch}.")
        if importlib.util.find_spec("pyautoattack") is None:
            raise SpecError(
                "`sources` names autoattack, which needs the extra attacks."
                " Install it with: pip install 'nppr[attacks]'"
            )

    def parts(self, classes: int) -> tuple[str, ...]:
        """The attacks that run on a classifier of this many classes."""
        return tuple(part for part, fewest in PARTS.items() if classes >= fewest)

    def missing_parts(self, classes: int) -> tuple[str, ...]:
        return tuple(part for part, fewest in PARTS.items() if classes < fewest)

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """A perturbation that breaks each input, or none where nothing did, `(B, 1, C, H, W)`."""
        with torch.no_grad():
            classes = model.logits(x[:2]).shape[1]
        from nppr.sources.custom import AsModule  # not before PyTorch is needed

        module = AsModule(model)
        with _quietly(x.device), module.kept():
            attack = self._standard(module, classes, draws.seed, x.device)
            found: Tensor = attack.run_standard_evaluation(
                x.contiguous(), y, batch_size=self.batch
            )[0]
        return (found - x).unsqueeze(1)

    def _standard(
        self, module: torch.nn.Module, classes: int, seed: int, device: torch.device
    ) -> Any:
        """Pyautoattack's standard version, aimed at the classes there are."""
        import pyautoattack

        made = pyautoattack.AutoAttack(
            module,
            norm={"linf": "Linf", "l2": "L2"}[self.budget.norm.name],
            eps=self.budget.radius,
            seed=seed,
            version="standard",
            device=device,
        )
        made.attacks_to_run = list(self.parts(classes))
        made.apgd_targeted.n_target_classes = min(TARGETS, classes - 1)
        made.fab.n_target_classes = min(TARGETS, classes - 1)
        return made


@contextmanager
def _quietly(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's generators afterwards and silence the log; the doctor makes its own checks.

    One of its checks takes a debugger's or a coverage tool's place and leaves it empty.
    """
    log = logging.getLogger("auto-attack")
    level, trace = log.level, sys.gettrace()
    log.setLevel(logging.CRITICAL)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        sys.settrace(trace)
        log.setLevel(level)
