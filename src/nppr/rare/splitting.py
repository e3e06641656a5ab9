"""Adaptive multilevel splitting: the probability of rare failures of single inputs.

With levels L_1 < L_2 < ... < 0 of the margin m, the probability of a failure is a product of shares
that are not small,

    P(m >= 0) = P(m > L_1) P(m > L_2 | m > L_1) ... P(m >= 0 | m > L_k).

A run starts with N points z ~ N(0, I). Each level is chosen such that about 1 in MOVES points lies
above it. These start chains of MOVES steps each, which stay above the level; all states of the
chains form the next population of N. This is subset simulation (Au and Beck 2001), as used for
networks by Webb et al. (ICLR 2019); see Cerou et al. (2012) for its theory. A level costs N calls
and divides the probability by about MOVES: p takes `N (1 + log(1/p) / log(MOVES))` calls, compared
to 100/p plain draws.

Chains take preconditioned Crank-Nicolson steps, `z' = sqrt(1 - beta^2) z + beta xi` with xi ~ N(0,
I): if z ~ N(0, I) then so is z', and (z, z') has the law of (z', z). A chain that accepts z' if it
lies above a level, and otherwise stays at z, thus preserves N(0, I) above that level, in any
dimension (Cotter et al. 2013).

Random numbers are keyed by (seed, dataset index, replicate, level): a run depends neither on the
micro-batch nor on other runs, up to the rounding of the classifier.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import derive_seed
from nppr.core.tally import FloatArray, IntArray, SplitKind
from nppr.data import Split
from nppr.measuring.measurement import NUMBERS_AT_ONCE
from nppr.models import FrozenClassifier, check_finite, is_out_of_memory
from nppr.rare.latent_noise import Latent

logger = logging.getLogger(__name__)

LOG_FLOOR = math.log(1e-12)
"""Smallest log p that a run looks for."""

MOVES = 5
"""Moves of a chain per level: the best 1/MOVES of a population start the chains of the next one.

For 4 to 10 moves, `var(log p) * calls` is nearly the same, about 1000 at p = 1e-6 (linear
classifiers, 1 to 64 pixels); fewer moves start more chains.
"""

FIRST_STEP, SMALLEST_STEP = 0.5, 1e-3
"""First and smallest step beta of a chain."""

TARGET_ACCEPTANCE = 0.44
"""Target share of accepted steps; between 0.3 and 0.5 it hardly matters."""

SWITCHING_SHARE = 0.25
"""Share of points that try a newly drawn component in a step."""

LATENTS_AT_ONCE = 2**25
"""Latent numbers in memory at once, unless one run has more."""


class Status(StrEnum):
    """How a search for failures ended.

    With BELOW and OUT_OF_CALLS, p is the estimated probability of the last level reached. It is not a
    bound: failures may lie where the margin does not lead.
    """

    FOUND = "found"
    BELOW = "below"
    OUT_OF_CALLS = "out of calls"


@dataclass(frozen=True)
class SplittingRun:
    """One search for failures of the input at `position` of a split; replicates are independent."""

    position: int
    replicate: int = 0


@dataclass
class Levels:
    """The state of a run, and its result once it has a `status`.

    `log_p` is log P(m > level), and `passed` the number of levels. The run gives up at the log p
    `floor` and after `limit` calls. `failures` counts failures of the first population, whose draws are
    independent. If all points were independent, log p had the `variance`
    `sum (1 - share) / (share N)`; the true variance is larger.
    """

    floor: float
    limit: int
    level: float = -math.inf
    log_p: float = 0.0
    variance: float = 0.0
    calls: int = 0
    failures: int = 0
    passed: int = 0
    status: Status | None = None
    _counted: int = 0

    def settle(self, margins: FloatArray) -> IntArray:
        """Count a population `(N,)` with margins > level; return the points above the next level.

        The result is empty once the run has ended with a `status`. Survivors lie strictly above the
        next level, so ties never count as progress: if the best points are tied, they survive
        together. If all are tied, the next level is still unknown: all survive, and points are
        counted until one differs. If none does, the last share counts as one in all counted points.
        """
        failing = int((margins >= 0).sum())
        if not self.calls:
            self.failures = failing
        self.calls += len(margins)
        self._counted += len(margins)
        keep = len(margins) // MOVES
        spent = self.calls + keep * MOVES > self.limit
        if failing >= keep or (failing and spent):
            self._pass(0.0, failing)
            self.status = Status.FOUND
            return np.empty(0, dtype=np.int64)
        following = _next_level(margins, keep)
        if following is None:
            survivors = np.arange(len(margins))
            reached = self.log_p - math.log(self._counted)
        else:
            survivors = np.flatnonzero(margins > following)
            self._pass(following, len(survivors))
            reached = self.log_p
        if reached >= self.floor and not spent:
            return survivors
        self.status = Status.BELOW if reached < self.floor else Status.OUT_OF_CALLS
        self.log_p = reached
        return survivors[:0]

    def _pass(self, level: float, above: int) -> None:
        share = above / self._counted
        self.log_p += math.log(share)
        self.variance += (1 - share) / above
        self.level = level
        self.passed += 1
        self._counted = 0


def _next_level(margins: FloatArray, keep: int) -> float | None:
    """Return the highest level with at most `keep` points above it, or just below tied best points."""
    ordered = np.sort(margins)[::-1]
    level = ordered[keep]
    if level < ordered[0]:
        return float(level)
    lower = ordered[ordered < ordered[0]]
    return float(lower[0]) if len(lower) else None


def propose(
    z: Tensor, beta: Tensor, noise: Tensor, choosing: slice, switch: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the next states of points z `(B, S, size)`, and which of them try another component.

    `beta` are the steps `(B,)`. Coordinates in `choosing`, which small steps would rarely change, are
    redrawn if the uniform numbers `switch` `(B, S)` are below SWITCHING_SHARE and otherwise stay.
    """
    step = beta.to(z)[:, None, None]
    moved = (1 - step.square()).sqrt() * z + step * noise
    if switch is None:
        return moved, torch.zeros(z.shape[:2], dtype=torch.bool, device=z.device)
    switching = switch < SWITCHING_SHARE
    moved[..., choosing] = torch.where(switching[..., None], noise[..., choosing], z[..., choosing])
    return moved, switching


def adapt(beta: Tensor, accepted: Tensor, switching: Tensor) -> Tensor:
    """Adapt steps `(B,)` after a move, `accepted` or not `(B, S)`, towards TARGET_ACCEPTANCE.

    Points that tried another component do not count, because a shorter step would not help them.
    """
    counted = (~switching).double()
    share = (accepted * counted).sum(1) / counted.sum(1).clamp_min(1)
    return (beta * (share - TARGET_ACCEPTANCE).exp()).clamp(SMALLEST_STEP, 1.0)


class MarginJudge:
    """Margins `max_{j != y} h_j - h_y` of points z; an input fails if its margin is >= 0.

    `calls` counts the images, `correct` those that did not fail. If memory runs out, micro-batches are
    halved.
    """

    def __init__(self, model: FrozenClassifier, latent: Latent, micro_batch: int) -> None:
        self.model = model
        self.latent = latent
        self.micro_batch = micro_batch
        self.calls = 0
        self.correct = 0

    def margins(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        """Map images `(B, C, H, W)`, labels `(B,)` and points `(B, S, size)` to margins `(B, S)`.

        The perturbed image is x under `push(z)`, clipped as in every measurement. Margins are doubles.
        """
        images = max(self.micro_batch, NUMBERS_AT_ONCE // x[0].numel())
        inputs = max(1, images // z.shape[1])
        rows = []
        for at in (slice(start, start + inputs) for start in range(0, len(x), inputs)):
            parts = z[at].split(images, dim=1)
            columns = [self._some(x[at], y[at], part, indices[at]) for part in parts]
            rows.append(torch.cat(columns, dim=1))
        found = torch.cat(rows)
        self.calls += found.numel()
        self.correct += int((found < 0).sum())
        return found

    def _some(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        delta = self.latent.push(x, y, z, indices)
        images = perturbed(x.unsqueeze(1), delta, self.latent.source.budget).flatten(0, 1)
        logits = self._logits(images)
        check_finite(logits, self.model.classifier.name)
        margins = margin(*self.model.to_classes(logits, y.repeat_interleave(z.shape[1])))
        # Convert to double on the CPU, because some devices lack doubles.
        return margins.cpu().double().view(len(x), z.shape[1])

    def _logits(self, images: Tensor) -> Tensor:
        while True:
            try:
                batches = images.split(self.micro_batch)
                return torch.cat([self.model.logits(batch) for batch in batches])
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.micro_batch == 1:
                    raise
            self.micro_batch //= 2
            logger.warning("out of memory: continuing with a micro-batch of %d", self.micro_batch)


def run_splitting(
    judge: MarginJudge,
    split: Split[SplitKind],
    runs: Sequence[SplittingRun],
    *,
    particles: int,
    limit: int,
    floor: float = LOG_FLOOR,
    seed: int,
    device: torch.device,
    on_end: Callable[[Levels], None] | None = None,
) -> list[Levels]:
    """Return the results of runs, in their order; call it in inference mode.

    A run has `particles` N, a multiple of MOVES. Runs advance level by level together, each with
    its own levels; a run that ends makes room for the next.
    """
    room = max(1, LATENTS_AT_ONCE // (particles * judge.latent.size))
    found = [Levels(floor, limit) for _ in runs]
    waiting, active = list(zip(runs, found, strict=True)), list[_Active]()
    while waiting or active:
        entering, waiting = waiting[: room - len(active)], waiting[room - len(active) :]
        if entering:
            active += _enter(judge, split, entering, particles, seed, device)
        for one in active:
            survivors = one.levels.settle(one.margins.numpy())
            if one.levels.status is None:
                one.start_chains(torch.from_numpy(survivors), particles, seed)
            elif on_end is not None:
                on_end(one.levels)
        active = [one for one in active if one.levels.status is None]
        if active:
            _move(judge, active)
    return found


@dataclass(eq=False)
class _Active:
    """An active run: its points `(N, size)` and their margins `(N,)`."""

    index: int
    stream: str
    x: Tensor
    y: Tensor
    levels: Levels
    generator: torch.Generator
    z: Tensor = field(init=False)
    margins: Tensor = field(init=False)
    beta: float = FIRST_STEP

    def reseed(self, seed: int, level: int) -> None:
        self.generator.manual_seed(derive_seed(seed, self.stream, self.index, level))

    def start_chains(self, survivors: Tensor, particles: int, seed: int) -> None:
        """Start chains at the survivors in random order, repeated if there are more chains."""
        self.reseed(seed, self.levels.calls // particles)
        device, count = self.generator.device, len(survivors)
        order = torch.randperm(count, generator=self.generator, device=device).cpu()
        rows = survivors[order[torch.arange(particles // MOVES) % count]]
        self.z, self.margins = self.z[rows.to(self.z.device)], self.margins[rows]


def _enter(
    judge: MarginJudge,
    split: Split[SplitKind],
    entering: Sequence[tuple[SplittingRun, Levels]],
    particles: int,
    seed: int,
    device: torch.device,
) -> list[_Active]:
    """Return runs with their first populations, which are independent draws."""
    x, y = split.batch(np.array([run.position for run, _ in entering]))
    fresh = [
        _Active(int(split.indices[run.position]), f"{split.kind.name}/rare/{run.replicate}",
                image, label, levels, torch.Generator(device))
        for (run, levels), image, label in zip(entering, x.to(device), y.to(device), strict=True)
    ]  # fmt: skip
    for one in fresh:
        one.reseed(seed, 0)
    z = _random(fresh, Tensor.normal_, particles, judge.latent.size)
    for one, points, margins in zip(fresh, z, _margins(judge, fresh, z), strict=True):
        one.z, one.margins = points, margins
    return fresh


def _move(judge: MarginJudge, active: Sequence[_Active]) -> None:
    """Replace each population by the next one: MOVES states of each chain."""
    z = torch.stack([one.z for one in active])
    margins = torch.stack([one.margins for one in active])
    levels = torch.tensor([[one.levels.level] for one in active], dtype=torch.float64)
    beta = torch.tensor([one.beta for one in active], dtype=torch.float64)
    choosing = judge.latent.choosing
    states, found = [], []
    for _ in range(MOVES):
        noise = _random(active, Tensor.normal_, *z.shape[1:])
        jumps = choosing.stop > choosing.start
        switch = _random(active, Tensor.uniform_, z.shape[1]) if jumps else None
        candidates, switching = propose(z, beta.float(), noise, choosing, switch)
        reached = _margins(judge, active, candidates)
        accepted = reached > levels
        z = torch.where(accepted.to(z.device)[..., None], candidates, z)
        margins = torch.where(accepted, reached, margins)
        beta = adapt(beta, accepted, switching.cpu())
        states.append(z)
        found.append(margins)
    results = zip(torch.cat(states, 1), torch.cat(found, 1), beta.tolist(), strict=True)
    for one, (points, reached, step) in zip(active, results, strict=True):
        one.z, one.margins, one.beta = points, reached, step


def _margins(judge: MarginJudge, active: Sequence[_Active], z: Tensor) -> Tensor:
    x, y = torch.stack([one.x for one in active]), torch.stack([one.y for one in active])
    return judge.margins(x, y, z, tuple(one.index for one in active))


def _random(active: Sequence[_Active], fill: Callable[..., Tensor], *shape: int) -> Tensor:
    """Return numbers `(B, *shape)`, each row from the generator of its run."""
    numbers = torch.empty(len(active), *shape, device=active[0].x.device)
    for row, one in zip(numbers, active, strict=True):
        fill(row, generator=one.generator)
    return numbers
