"""Adaptive multilevel splitting: the probability of rare failures of single inputs.

A run starts with N points z ~ N(0, I). The best N/MOVES start chains of MOVES steps each, which stay
above the level that the others did not reach; all states of the chains are the next population of N.
That is subset simulation (Au and Beck 2001), as used for networks by Webb et al. (ICLR 2019); see
Cerou et al. (2012) for its theory. A level costs N calls and divides the probability by about MOVES:
p takes `N (1 + log(1/p) / log(MOVES))` calls, where plain draws would take 100/p.

Random numbers are keyed by (seed, dataset index, replicate, level): a run depends neither on the
micro-batch nor on other runs, up to the rounding of the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nppr.data import Part
from nppr.draws import key
from nppr.rare.judge import Judge
from nppr.rare.levels import MOVES, Levels, Status
from nppr.rare.move import START, adapted, proposed
from nppr.types import Split

__all__ = ["FLOOR", "Outcome", "Run", "Scheme", "split"]

FLOOR = math.log(1e-12)
"""The log p below which a run gives up."""

NUMBERS_KEPT = 2**25
"""Latent numbers that are kept at once, unless one run has more."""


@dataclass(frozen=True)
class Scheme:
    """`particles` N (a multiple of MOVES), the calls a run may make and the log p where it ends."""

    particles: int
    limit: int
    floor: float = FLOOR

    @property
    def chains(self) -> int:
        return self.particles // MOVES


@dataclass(frozen=True)
class Run:
    """One search for failures of the input at `position` of a part; replicates are independent."""

    position: int
    replicate: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run found; `variance` is that of log p if all points were independent."""

    log_p: float
    variance: float
    calls: int
    levels: int
    status: Status


def split(
    judge: Judge,
    part: Part[Split],
    runs: Sequence[Run],
    scheme: Scheme,
    *,
    seed: int,
    device: torch.device,
    tell: Callable[[Run, Outcome | None], None] | None = None,
) -> list[Outcome]:
    """The outcomes of runs, in their order.

    Runs go level by level together, each with its own levels; one that ends makes place for the next.
    After a level `tell` is given each run, with its outcome where it has ended.
    """
    room = max(1, NUMBERS_KEPT // (scheme.particles * judge.latent.size))
    waiting = list(enumerate(runs))
    outcomes: dict[int, Outcome] = {}
    active: list[_Active] = []
    with torch.inference_mode():
        while waiting or active:
            entering, waiting = waiting[: room - len(active)], waiting[room - len(active) :]
            if entering:
                fresh = _entered(part, entering, scheme, device)
                _start(judge, fresh, scheme, seed)
                active += fresh
            for one in active:
                one.settle()
                outcome = one.outcome
                if outcome is not None:
                    outcomes[one.order] = outcome
                if tell is not None:
                    tell(one.run, outcome)
            active = [one for one in active if one.outcome is None]
            if active:
                _move(judge, active, scheme, seed)
    return [outcomes[order] for order in range(len(runs))]


@dataclass(eq=False)
class _Active:
    """A run under way: its population `(N, size)`, margins `(N,)` and those that survive."""

    order: int
    run: Run
    stream: str
    index: int
    x: Tensor
    y: Tensor
    levels: Levels
    generator: torch.Generator
    z: Tensor
    margins: Tensor
    survivors: Tensor
    beta: float = START
    stage: int = 0

    def settle(self) -> None:
        survivors = self.levels.settle(self.margins.numpy())
        self.survivors = torch.from_numpy(survivors)

    @property
    def outcome(self) -> Outcome | None:
        levels = self.levels
        if levels.status is None:
            return None
        return Outcome(levels.log_p, levels.variance, levels.calls, levels.passed, levels.status)

    def reseed(self, seed: int) -> None:
        """Random numbers of the next level."""
        stream = f"{self.stream}/rare/{self.run.replicate}"
        self.generator.manual_seed(key(seed, stream, self.index, self.stage))
        self.stage += 1

    def starts(self, chains: int) -> Tensor:
        """Survivors in random order, again and again where there are fewer than chains."""
        count = len(self.survivors)
        device = self.generator.device
        order = torch.randperm(count, generator=self.generator, device=device).cpu()
        return self.survivors[order[torch.arange(chains) % count]]


def _entered(
    part: Part[Split], entering: Sequence[tuple[int, Run]], scheme: Scheme, device: torch.device
) -> list[_Active]:
    positions = np.array([run.position for _, run in entering])
    x, y = part.batch(positions)
    x, y = x.to(device), y.to(device)
    empty = torch.empty(0)
    return [
        _Active(
            order, run, part.kind.name, int(part.indices[run.position]), x[row], y[row],
            Levels(scheme.floor, scheme.limit), torch.Generator(device), empty, empty, empty,
        )
        for row, (order, run) in enumerate(entering)
    ]  # fmt: skip


def _start(judge: Judge, fresh: Sequence[_Active], scheme: Scheme, seed: int) -> None:
    """The first populations: independent draws."""
    for one in fresh:
        one.reseed(seed)
    z = _normal(fresh, (scheme.particles, judge.latent.size))
    margins = judge.margins(*_inputs(fresh), z, _indices(fresh))
    for one, points, found in zip(fresh, z, margins, strict=True):
        one.z, one.margins = points, found


def _move(judge: Judge, active: Sequence[_Active], scheme: Scheme, seed: int) -> None:
    """The next populations: MOVES states of chains that start at survivors."""
    starts = []
    for one in active:
        one.reseed(seed)
        rows = one.starts(scheme.chains)
        starts.append((one.z[rows.to(one.z.device)], one.margins[rows]))
        one.z = one.margins = torch.empty(0)  # frees the population before the next is made
    z = torch.stack([points for points, _ in starts])
    margins = torch.stack([found for _, found in starts])
    levels = torch.tensor([[one.levels.level] for one in active], dtype=torch.float64)
    beta = torch.tensor([one.beta for one in active], dtype=torch.float64)
    inputs, indices = _inputs(active), _indices(active)
    choosing = judge.latent.choosing
    jumps = choosing.stop > choosing.start
    states, found = [], []
    for _ in range(MOVES):
        noise = _normal(active, tuple(z.shape[1:]))
        switch = _uniform(active, z.shape[1]) if jumps else None
        candidates, switching = proposed(z, beta.float(), noise, choosing, switch)
        ours = judge.margins(*inputs, candidates, indices)
        taken = ours > levels
        z = torch.where(taken.to(z.device)[..., None], candidates, z)
        margins = torch.where(taken, ours, margins)
        beta = adapted(beta, taken, switching.cpu())
        states.append(z)
        found.append(margins)
    populations, all_margins = torch.cat(states, 1), torch.cat(found, 1)
    for one, points, seen, step in zip(
        active, populations, all_margins, beta.tolist(), strict=True
    ):
        one.z, one.margins, one.beta = points, seen, step


def _inputs(active: Sequence[_Active]) -> tuple[Tensor, Tensor]:
    return torch.stack([one.x for one in active]), torch.stack([one.y for one in active])


def _indices(active: Sequence[_Active]) -> tuple[int, ...]:
    return tuple(one.index for one in active)


def _normal(active: Sequence[_Active], shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers `(B, *shape)`, each row from the generator of its run."""
    numbers = torch.empty(len(active), *shape, device=active[0].x.device)
    for row, one in zip(numbers, active, strict=True):
        row.normal_(generator=one.generator)
    return numbers


def _uniform(active: Sequence[_Active], count: int) -> Tensor:
    numbers = torch.empty(len(active), count, device=active[0].x.device)
    for row, one in zip(numbers, active, strict=True):
        row.uniform_(generator=one.generator)
    return numbers
