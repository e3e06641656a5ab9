"""What every perturbation source must keep, over the registry and the sources without a name."""

from __future__ import annotations

import copy
import logging
import random
import sys
from functools import cache

import numpy as np
import pyautoattack
import pytest
import torch
from torch import nn

from helpers import FAMILIES
from nppr.core.budget import Budget, perturbed
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Evaluate, FrozenModel, Tally
from nppr.data import load_data
from nppr.measuring.measurement import measure
from nppr.models import Classifier, PreparedClassifier, frozen, load_classifier, prepare
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.noise.structures import ANY
from nppr.run.assessment_run import AssessmentRun
from nppr.run.resolve import Resolved
from nppr.run.shards import share_out
from nppr.settings import Measure
from nppr.sources import JPEG, SOURCES, Brightness, Clean, Scan, Source, parse_sources, sources_in
from nppr.sources.custom import CustomAttack, CustomNoise
from nppr.sources.gaussian_offset import make_offset_sources
from nppr.sources.learned import Learned
from nppr.sources.noise_samples import NoiseSamples
from nppr.sources.per_input_noise import PerInputNoise
from nppr.system.worker_pools import WorkerPool

BUDGETS = [Budget.linf(0.1), Budget.l2(0.8)]
BOX = Budget.box("rotate=30,exposure=-1:0")
SHAPE = (1, 8, 8)
CORRUPTIONS = [name for name, kind in SOURCES.items() if not kind.has_budget]
VARIANTS = [
    "gaussian:scale=3",
    "uniform:scale=2",
    "pgd:steps=3:restarts=2",
    "weak-adversary:variance=0.001:step=1",
    "stress:q=2+7",
    "bound:set=tv:patterns=21",
    "salt-and-pepper:severity=5",
    "jpeg:severity=5:constants=imagenet-c",
]


def quick(budget: Budget) -> list[str]:
    """All sources of a budget that have names."""
    names = [name for name in sources_in(budget) if SOURCES[name].has_budget]
    return [name.replace("universal", "universal:calls=320") for name in names]


def all_sources() -> list[Source]:
    named = [each for b in (*BUDGETS, BOX) for each in parse_sources(",".join(quick(b)), b)]
    more = parse_sources(",".join(CORRUPTIONS + VARIANTS), BUDGETS[0])
    custom = [CustomAttack(BUDGETS[0], jump), CustomNoise(BUDGETS[1], shake)]
    noises = [learned(each, BUDGETS[0]) for each in FAMILIES]
    noises += [learned(Dependency.JOINT, budget) for budget in (BUDGETS[1], BOX)]
    own = [PerInputNoise(noise, calls=6) for noise in noises[-3:]]
    noises += [
        learned(rung, budget, structure)
        for structure in ("white", "stationary")
        for rung, budget in zip((Dependency.LABEL, Dependency.INDEPENDENT), BUDGETS, strict=True)
    ]
    own += [PerInputNoise(noise, calls=6) for noise in noises[-3:-1]]
    samples = [sampled(0.02, 8), sampled(0.2, 5), sampled(0.2, 12)]
    offsets = make_offset_sources(0.25, [0.25], calls=12)
    return [*named, *more, *custom, *noises, *own, *samples, *offsets]


def sampled(std: float, side: int) -> NoiseSamples:
    """Measured noise, from frames of the size of the images or of another size."""
    frames = 0.5 + std * np.clip(np.random.default_rng(side).normal(size=(12, side, side)), -2, 2)
    return NoiseSamples.from_frames(frames, load_data("digits"), BUDGETS[0], confidence=0.95)


def jump(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """An attack written by a user: a random step against the gradient's sign."""
    moved = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(moved).gather(1, y[:, None]).sum(), moved)
    return x - 0.1 * torch.rand(1) * gradient.sign() / 8


def shake(x: torch.Tensor, y: torch.Tensor, draws: int) -> torch.Tensor:  # noqa: ARG001
    """Noise written by a user."""
    return x[:, None] + 0.01 * torch.rand(1, draws, *x.shape[1:])


def learned(dependency: Dependency, budget: Budget, structure: str = ANY) -> Learned:
    """A distribution that was not fitted, with heads that are not zero any more."""
    torch.manual_seed(0)
    family = Family(dependency, components=3, floor=0.2, structure=structure)
    made = Distribution(family, budget.domain(SHAPE), 10, 256)
    with torch.no_grad():
        for parameter in made.mixture.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape))
    return Learned(budget, made.eval())


def over(chosen: list[Source]) -> pytest.MarkDecorator:
    def name(source: Source) -> str:
        parts = (source.name, source.dependency, source.budget)
        return "-".join(str(part) for part in parts if part)

    return pytest.mark.parametrize("source", chosen, ids=name)


sources = over(all_sources())
DATA = load_data("digits").limit(inputs=20, fit_inputs=70)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """AutoAttack with all its parts, but few steps of each."""
    standard = pyautoattack.AutoAttack._set_version

    def quick(self: pyautoattack.AutoAttack, version: str = "standard") -> None:
        standard(self, version)
        self.square.n_queries = 3
        for part in (self.apgd, self.apgd_targeted, self.fab):
            part.n_iter = 3

    monkeypatch.setattr(pyautoattack.AutoAttack, "_set_version", quick)


def module() -> nn.Module:
    loaded = load_classifier("digits-cnn").module
    assert loaded is not None
    return loaded


@cache
def classifier() -> Classifier:
    known = load_classifier("digits-cnn")
    return Classifier(module(), mean=known.mean, std=known.std)


@cache
def prepared(micro_batch: int) -> PreparedClassifier:
    x, _ = DATA.evaluate.batch(np.arange(8))
    return prepare(classifier(), x, classes=10, micro_batch=micro_batch)


def block(source: Source, indices: tuple[int, ...], seed: int = 0) -> DrawBlock:
    capacity = source.fixed_draws or 16
    size = source.fixed_draws or 5
    return DrawBlock(seed, "evaluate", indices, 0, size, torch.device("cpu"), capacity)


def ready(source: Source, known: Classifier, seed: int = 0) -> Source:
    """The source, with the data it must be fitted on if it must."""
    return source.fitted_on(known, DATA.fit, seed=seed)


def perturb(source: Source, model: FrozenModel, rows: list[int], seed: int = 0) -> torch.Tensor:
    x, y = DATA.evaluate.batch(np.array(rows))
    return source.perturb(model, x, y, block(source, tuple(rows), seed))


def perturbations(source: Source, rows: list[int], seed: int = 0) -> torch.Tensor:
    known = classifier()
    with frozen(known) as model:
        return perturb(ready(source, known, seed), model, rows, seed)


@sources
def test_budget_range_and_shape(source: Source) -> None:
    delta = perturbations(source, list(range(6)))
    shape = source.budget.domain(SHAPE) if source.budget else SHAPE
    assert delta.shape == (6, source.fixed_draws or 5, *shape)
    assert bool(torch.isfinite(delta).all())
    if source.budget is not None:
        assert bool(source.budget.contains(delta).all())
    x, _ = DATA.evaluate.batch(np.arange(6))
    moved = perturbed(x[:, None], delta, source.budget)
    assert float(moved.min()) >= 0
    assert float(moved.max()) <= 1
    assert float(delta.abs().max()) > 0


@pytest.mark.parametrize("budget", [Budget.linf(1e-4), Budget.l2(1e-3), BOX.at(1e-4)], ids=str)
def test_rounding_is_no_breach_of_a_tiny_budget(budget: Budget) -> None:
    for spec in quick(budget):
        (source,) = parse_sources(spec, budget)
        budget.require(perturbations(source, list(range(12))), spec)


@pytest.mark.slow
@sources
def test_the_seed_decides(source: Source) -> None:
    rows = list(range(6))
    first = perturbations(source, rows)
    assert torch.equal(first, perturbations(source, rows))
    drawn = not isinstance(source, Brightness | JPEG | Scan)  # they have no random numbers
    # the worst pattern and the signs of mean gradients in two parameters may be the same on any inputs
    either = source.kind == "patterns" or (source.kind == "universal" and source.budget == BOX)
    assert either or torch.equal(first, perturbations(source, rows, seed=1)) != drawn


# the others are given the same batch whatever the micro-batch
@over([source for source in all_sources() if source.inputs_at_once is None])
def test_an_input_does_not_see_its_batch(source: Source) -> None:
    together = perturbations(source, [3, 4, 5])
    alone = perturbations(source, [4])
    assert torch.allclose(together[1], alone[0], atol=1e-6)


def require_same_records(source: Source, one: Tally[Evaluate], other: Tally[Evaluate]) -> None:
    """Outcomes and sums are there for the sources that declare them, and agree."""
    kept = [each.outcomes for each in (one, other) if each.outcomes is not None]
    assert len(kept) == 2 * source.keeps_outcomes
    assert all(np.array_equal(each, kept[0]) for each in kept)
    sums = [each.sums for each in (one, other) if each.sums is not None]
    assert len(sums) == 2 * bool(source.observes)
    # Another batch rounds logits otherwise, and tiny losses are all rounding.
    assert all(np.allclose(each, sums[-1], rtol=1e-3, atol=1e-2) for each in sums)


def test_some_sources_have_outcomes_and_some_have_sums() -> None:
    assert {source.keeps_outcomes for source in all_sources()} == {False, True}
    assert {bool(source.observes) for source in all_sources()} == {False, True}


@pytest.mark.slow
@sources
def test_counts_do_not_depend_on_the_batch_size(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise such small images would all be made together, whatever the micro-batch.
    monkeypatch.setattr(sys.modules["nppr.measuring.measurement"], "NUMBERS_AT_ONCE", 1)
    source = ready(source, classifier())
    tallies = [measure(source, prepared(size), DATA.evaluate, draws=17) for size in (1, 64)]
    for tally in tallies[1:]:
        assert np.array_equal(tally.correct, tallies[0].correct)
        assert tally.calls == tallies[0].calls
        require_same_records(source, tally, tallies[0])


def again() -> Resolved:
    """What the process of a shard loads."""
    return Resolved(DATA, classifier())


def measured_in_shards(source: Source, parts: int) -> Tally[Evaluate]:
    """The tally of a source, measured by so many shards."""
    resolved = Resolved(DATA, classifier(), prepared=prepared(8), request=again)
    run = AssessmentRun.open(resolved, source.budget or BUDGETS[0], Measure(draws=17))
    run.measure_clean(keep=False)
    if parts > 1:
        run.pool = WorkerPool()
        run.pool.slots = parts
        share_out(run, [run.plan(source)])
        kept = run.held[source.name].held
        assert kept is not None
        assert kept.finished.all(), "nothing is left for the process of the run"
    return run.tally(run.plan(source))


@pytest.mark.slow
@sources
def test_counts_do_not_depend_on_the_number_of_shards(source: Source) -> None:
    source = ready(source, classifier())
    whole, *divided = (measured_in_shards(source, parts) for parts in (1, 2, 3))
    for tally in divided:
        assert np.array_equal(tally.correct, whole.correct)
        assert tally.calls == whole.calls
        assert np.array_equal(tally.clean_correct, whole.clean_correct)
        require_same_records(source, tally, whole)


@sources
def test_mode_and_weights_are_left_alone(source: Source) -> None:
    network = module().train()
    network.get_submodule("head").eval()
    modes = [layer.training for layer in network.modules()]
    weights = copy.deepcopy(network.state_dict())
    known = Classifier(network)
    with frozen(known) as model:
        perturb(ready(source, known), model, [0, 1, 2, 3])
    assert [layer.training for layer in network.modules()] == modes
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


@sources
def test_the_input_is_left_alone(source: Source) -> None:
    x, y = DATA.evaluate.batch(np.arange(4))
    before, labels = x.clone(), y.clone()
    known = classifier()
    with frozen(known) as model:
        ready(source, known).perturb(model, x, y, block(source, (0, 1, 2, 3)))
    assert torch.equal(x, before)
    assert torch.equal(y, labels)
    assert not x.requires_grad


@sources
def test_the_callers_random_numbers_and_loggers_are_left_alone(source: Source) -> None:
    known, log = classifier(), logging.getLogger("auto-attack")
    with frozen(known) as model:
        before = torch.get_rng_state(), random.getstate(), log.level
        perturb(ready(source, known), model, [0, 1])
        after = torch.get_rng_state(), random.getstate(), log.level
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@sources
def test_what_it_declares_holds(source: Source) -> None:
    either = isinstance(source, NoiseSamples)  # the frames decide
    assert either or (source.budget is not None) == type(source).has_budget
    assert source.cost >= 1
    if source.kind in SOURCES:
        (again,) = parse_sources(source.name, source.budget or BUDGETS[0])
        assert again == source
    if source.budget is not None and not isinstance(source, CustomAttack | CustomNoise):
        moved = source.at(source.budget.at(0.05))
        assert type(moved) is type(source)
        assert moved.name == source.name


@sources
def test_its_tally_is_read_with_its_metric_first(source: Source) -> None:
    source = ready(source, classifier())
    clean = measure(Clean(), prepared(64), DATA.evaluate)
    tally = measure(source, prepared(64), DATA.evaluate, draws=20)
    rows = source.read(tally, clean, 0.95, 0)
    assert rows[0].metric is source.metric
    for row in rows:
        assert row.low <= row.value <= row.high
        assert row.confidence == 0.95
        assert row.split == "evaluate"


def test_clean_does_nothing() -> None:
    assert not perturbations(Clean(), [0, 1]).any()
    clean = measure(Clean(), prepared(64), DATA.evaluate)
    (accuracy,) = Clean().read(clean, clean, 0.95, 0)
    assert accuracy.value == clean.clean_correct.mean()
