"""Failure probabilities against closed forms, their combination with plain draws, and their files."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor, nn

from helpers import Linear, evaluate_part
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, FloatArray, Progress, Tally
from nppr.data import Split
from nppr.errors import RunFolderError, SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.rare import (
    Rare,
    Status,
    add_rare_failures,
    estimate_rare_failures,
    format_rare_csv,
    join_rare,
    read_rare,
    write_rare,
)
from nppr.rare.failure_probabilities import (
    FEWEST_PARTICLES,
    MOST_PARTICLES,
    RARE_ARRAYS,
    count_calls,
)
from nppr.settings import RARE_ACCURACY, RARE_CALLS_PER_INPUT, RARE_FLOOR
from nppr.sources import PGD, Clean, Gaussian, Source, Uniform
from nppr.sources.learned import Learned
from nppr.statistics.intervals import clopper_pearson_upper

pytestmark = pytest.mark.slow

SIGMA = 0.01

SOURCE = Gaussian(Budget.linf(0.5), 0.02)

P = np.array([1e-1, 1e-3, 1e-5, 1e-8])


class Counting(Linear):
    """Counts the images it is given."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return super().forward(x)


def bright(p: FloatArray) -> Split[Evaluate]:
    """Inputs of class 0 that fail with these probabilities: `0.5 - mean(x)` must stay positive."""
    distance = SIGMA / 4 * norm.isf(p)
    images = torch.tensor(0.5 - distance).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    return evaluate_part(images, [0] * len(p))


def ready(model: nn.Module | None = None, micro_batch: int = 256) -> PreparedClassifier:
    known = model or Linear(torch.full((16,), -1 / 16), 0.5)
    images = torch.full((2, 1, 4, 4), 0.5)
    return prepare(Classifier(known), images, classes=2, micro_batch=micro_batch)


def test_closed_form_with_its_interval() -> None:
    part = bright(np.repeat(P, 6))
    found = estimate_rare_failures(SOURCE, ready(), part, np.arange(24), calls=24 * 20_000)
    truth = np.log(np.repeat(P, 6))
    assert found.status == (Status.FOUND,) * 24
    held = (found.log_low <= truth) & (truth <= found.log_high)
    assert held.sum() >= 21  # 95 % of 24, approximately
    score = (found.log_p - truth) / found.spread
    assert 0.5 < score.std() < 1.6
    assert np.abs(found.log_p - truth).max() < math.log(3)
    assert np.allclose(found.p, np.exp(found.log_p))
    assert (found.low < found.p).all()
    assert (found.p < found.high).all()
    # The interval is that of Student, on the scale of log p.
    half = student.ppf(0.975, 4) * found.spread
    assert np.allclose(found.log_p - found.log_low, half)
    wider = estimate_rare_failures(SOURCE, ready(), part, [3, 9], calls=2 * 20_000, confidence=0.99)
    assert np.allclose(wider.log_p, found.log_p[[3, 9]])
    assert (wider.log_low < found.log_low[[3, 9]]).all()


def test_the_accuracy_with_the_fewest_calls_is_the_one_that_is_quoted() -> None:
    """`RARE_ACCURACY`: about 30 % at 1e-3 and 55 % at 1e-6, up to the spread of 200 estimates."""
    estimates = 200
    for p, least, most in ((1e-3, 0.24, 0.42), (1e-6, 0.4, 0.8)):
        assert f"{p:.0e}".replace("e-0", "e-") in RARE_ACCURACY
        calls = RARE_CALLS_PER_INPUT * estimates
        part, places = bright(np.full(estimates, p)), np.arange(estimates)
        found = estimate_rare_failures(SOURCE, ready(), part, places, calls=calls, floor=RARE_FLOOR)
        assert least < (found.p / p).std(ddof=1) < most
        assert 0.9 < (found.p / p).mean() < 1.3
    assert f"{RARE_CALLS_PER_INPUT:,} calls" in RARE_ACCURACY


class Abrupt(nn.Module):
    """Fails with probability 1e-4 under Uniform noise of 1/4, while the margin climbs elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        u = 4 * (x.flatten(1) - 0.5)
        climbs = u[:, :4].amin(1) - 2
        margin = torch.where(u[:, 4:8].amin(1) >= 0.8, 1.0, climbs)
        return torch.stack([torch.zeros_like(margin), margin], 1)


def test_the_limit_holds_where_splitting_misses_an_abrupt_region() -> None:
    count, p = 60, 1e-4
    part = evaluate_part(torch.full((count, 1, 4, 4), 0.5), [0] * count)
    source = Uniform(Budget.linf(0.25))
    calls = count * RARE_CALLS_PER_INPUT
    found = estimate_rare_failures(
        source, ready(Abrupt()), part, np.arange(count), calls=calls, floor=RARE_FLOOR
    )
    assert (found.high < p).mean() > 0.5
    assert (found.limit >= p).all()
    assert found.limit.min() == pytest.approx(1 - 0.05 ** (1 / (5 * found.particles)))


@pytest.mark.parametrize("p", [0.0055, 0.02, 0.2])
def test_the_limit_holds_in_95_percent_whatever_the_probability(p: float) -> None:
    """Of inputs that are followed: 0 of 550 draws guarantee 0.0054."""
    count = 400
    calls = count * RARE_CALLS_PER_INPUT
    part = bright(np.full(count, p))
    found = estimate_rare_failures(
        SOURCE, ready(), part, np.arange(count), calls=calls, floor=RARE_FLOOR
    )
    assert found.particles * found.replicates == 550
    held = (found.limit >= p).mean()
    assert held >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / count)
    exact = clopper_pearson_upper(np.arange(551), 550, 0.95)
    counts = np.searchsorted(exact, found.limit - 1e-12)
    assert np.allclose(exact[counts], found.limit)
    # The draws are independent ones: their failures are binomial, inputs and runs apart.
    assert abs(counts.mean() / 550 - p) < 4 * math.sqrt(p / 550 / count)
    assert counts.var(ddof=1) == pytest.approx(550 * p * (1 - p), rel=0.3)


def test_all_calls_are_counted_and_bounded() -> None:
    model = Counting(torch.full((16,), -1 / 16), 0.5)
    classifier = ready(model)
    classifier = replace(classifier, fast=Classifier(model), original=Classifier(model))
    for calls in (2_000, 7_777, 60_000):
        model.seen = 0
        found = estimate_rare_failures(SOURCE, classifier, bright(P), [0, 1, 2, 3], calls=calls)
        assert found.calls.sum() == model.seen <= calls
        assert (found.calls <= calls // 4).all()
        assert found.particles % 5 == 0
        assert found.particles >= FEWEST_PARTICLES
    assert (np.diff(found.calls) >= 0).all()
    assert found.calls[0] < found.calls[3]


def test_too_few_calls_to_reach_failures() -> None:
    found = estimate_rare_failures(SOURCE, ready(), bright(P), [0, 3], calls=2 * 5 * 250)
    assert found.status == (Status.FOUND, Status.OUT_OF_CALLS)
    # The probability of the last level that was reached.
    assert found.p[1] > P[3]
    assert found.p[1] == pytest.approx(1 / 25, rel=0.2)


def test_always_and_never() -> None:
    """Noise of at most 1/10 per pixel: means of 0.8 always fail, those of 0.2 never do."""
    images = torch.tensor([0.8, 0.2]).view(2, 1, 1, 1).expand(2, 1, 4, 4)
    part = evaluate_part(images, [0, 0])
    found = estimate_rare_failures(Uniform(Budget.linf(0.1)), ready(), part, [0, 1], calls=40_000)
    assert found.status == (Status.FOUND, Status.BELOW)
    assert found.p[0] == found.low[0] == found.high[0] == 1.0
    assert 1e-13 < found.p[1] < 1e-12
    assert found.calls[1] <= 20_000
    higher = estimate_rare_failures(
        Uniform(Budget.linf(0.1)), ready(), part, [1], calls=20_000, floor=1e-3
    )
    assert higher.status == (Status.BELOW,)
    assert 1e-4 < higher.p[0] < 1e-3
    assert higher.particles > found.particles


def test_particles_follow_the_calls() -> None:
    assert count_calls(10, math.log(1e-12)) == 190
    few = estimate_rare_failures(SOURCE, ready(), bright(P), [1], calls=5 * 19 * 200)
    assert few.particles == 200
    many = estimate_rare_failures(SOURCE, ready(), bright(P[:1]), [0], calls=10**7)
    assert many.particles == MOST_PARTICLES


def test_neither_order_nor_company_nor_micro_batch_matters() -> None:
    part = bright(P)
    # Sums of 16 equal pixels in single precision may round by batch: the probabilities do not.
    all_of = estimate_rare_failures(SOURCE, ready(), part, [0, 1, 2, 3], calls=4 * 9_600)
    other = estimate_rare_failures(SOURCE, ready(micro_batch=33), part, [3, 1], calls=2 * 9_600)
    assert other.positions.tolist() == [3, 1]
    assert np.allclose(other.log_p, all_of.log_p[[3, 1]], atol=0.5)
    again = estimate_rare_failures(SOURCE, ready(), part, [0, 1, 2, 3], calls=4 * 9_600)
    assert np.array_equal(again.log_p, all_of.log_p)
    seed = estimate_rare_failures(SOURCE, ready(), part, [0, 1, 2, 3], calls=4 * 9_600, seed=1)
    assert not np.array_equal(seed.log_p, all_of.log_p)


def test_runs_are_combined_by_their_arithmetic_mean() -> None:
    """Small runs spread much: their geometric mean would be too low by half their variance."""
    count = 400
    part = bright(np.full(count, 1e-3))
    found = estimate_rare_failures(
        SOURCE, ready(), part, np.arange(count), calls=count * 2 * 1_900, replicates=2
    )
    assert found.particles == FEWEST_PARTICLES
    ratio = found.p / 1e-3
    assert abs(ratio.mean() - 1) < 0.03 + 3 * ratio.std() / math.sqrt(count)
    # Two runs have half the variance of one, and their mean half of its shift.
    shift = (found.log_p - math.log(1e-3)).mean()
    assert shift == pytest.approx(-found.log_p.var() / 2, abs=0.05)


def test_progress_ends_with_all_calls() -> None:
    told: list[Progress] = []
    found = estimate_rare_failures(
        SOURCE, ready(), bright(P), [0, 1, 2], calls=30_000, progress=told.append
    )
    assert len(told) == 15
    done = [state.done for state in told]
    assert done == sorted(done)
    assert told[-1].done == told[-1].total == found.calls.sum()
    assert all(state.total <= 30_000 for state in told)
    assert 0 < told[-1].correct < told[-1].done
    assert told[0].source == "gaussian:scale=0.02"


def test_quantised_inputs_are_8_bit() -> None:
    """A mean that 8 bits round to 128/255 > 1/2 fails always, one they round to 127/255 never."""
    images = torch.full((1, 1, 4, 4), 127.6 / 255)
    part = evaluate_part(images, [0])
    source = Gaussian(Budget.linf(0.5), 1e-5)
    kept: dict[str, Any] = {"calls": 20_000}
    rounding = replace(ready(), quantise=True)
    assert estimate_rare_failures(source, rounding, part, [0], **kept).p[0] == 1.0
    images -= 0.3 / 255
    never = estimate_rare_failures(source, rounding, part, [0], **kept)
    # All margins are the same, so there are no levels: as much is known as from plain draws.
    assert never.status == (Status.OUT_OF_CALLS,)
    assert never.p[0] == pytest.approx(5 / never.calls[0], rel=0.3)


def test_the_model_is_left_as_it_was() -> None:
    model = Linear(torch.full((16,), -1 / 16), 0.5).train()
    before = copy.deepcopy(model.state_dict())
    estimate_rare_failures(SOURCE, ready(model), bright(P), [1], calls=10_000)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


SHAPE, FEATURES = (1, 4, 4), 6

IMAGES = torch.rand(60, *SHAPE, generator=torch.Generator().manual_seed(2))


def network() -> nn.Module:
    """One that gives half of the images to either class."""
    torch.manual_seed(0)
    last = nn.Linear(FEATURES, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, FEATURES), nn.Tanh(), last)
    with torch.no_grad():
        last.bias[0] -= model(IMAGES).diff().neg().median()
    return model


def learned(dependency: Dependency, floor: float) -> Learned:
    torch.manual_seed(1)
    family = Family(dependency, components=3, hidden_dim=8, label_dim=4, floor=floor)
    made = Distribution(family, SHAPE, 2, FEATURES)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(0.5 * torch.randn_like(value))
    return Learned(Budget.linf(0.3), made)


@pytest.mark.parametrize(
    ("dependency", "floor"),
    [(Dependency.INDEPENDENT, 0.0), (Dependency.JOINT, 0.0), (Dependency.JOINT, 0.5)],
)
def test_learned_distributions_beside_plain_draws(dependency: Dependency, floor: float) -> None:
    source = learned(dependency, floor)
    classifier = ready(network())
    answers = classifier.fast.forward(IMAGES).argmax(1)
    part = evaluate_part(IMAGES, answers.tolist())
    plain = measure(source, classifier, part, draws=4_000, seed=3)
    chosen = np.flatnonzero((plain.rates > 0.5) & (plain.rates < 0.998))[:8]
    assert len(chosen) >= 4
    share = 10_000
    found = estimate_rare_failures(source, classifier, part, chosen, calls=len(chosen) * share)
    q = 1 - plain.rates[chosen]
    error = np.hypot(found.spread, np.sqrt((1 - q) / (q * plain.draws)))
    assert (np.abs(found.log_p - np.log(q)) < 4 * error).all()
    assert (np.abs(found.log_p - np.log(q)) < 2 * error).mean() >= 0.5
    # Features are found once for an input, and once more to look at the source.
    features = found.calls % found.particles
    assert features.tolist() == (
        [2] + [1] * (len(chosen) - 1) if dependency.sees_input else [0] * len(chosen)
    )


def test_known_features_are_not_found_again() -> None:
    source = learned(Dependency.JOINT, 0.0)
    classifier = ready(network())
    part = evaluate_part(IMAGES[:3], [0, 1, 0])
    kept: dict[int, Tensor] = {}
    measure(Clean(), classifier, part, clean_correct=np.ones(3, bool), keep=kept)
    told = replace(source, known=kept)
    fresh, known = (
        estimate_rare_failures(one, classifier, part, [0, 1, 2], calls=30_000)
        for one in (source, told)
    )
    assert np.allclose(fresh.log_p, known.log_p, atol=0.3)
    assert (known.calls % known.particles).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls": 499}, "`calls` must give each run of an input at least 100"),
        ({"calls": 0}, "`calls`"),
        ({"positions": []}, "`positions`"),
        ({"positions": [1, 1]}, "`positions`"),
        ({"positions": [4]}, r"`positions` must lie in 0..3"),
        ({"positions": [-1]}, r"`positions` must lie in 0..3"),
        ({"replicates": 1}, "`replicates`"),
        ({"confidence": 1.0}, "`confidence`"),
        ({"floor": 0.0}, "`rare-floor`"),
        ({"source": PGD(Budget.linf(0.1))}, "splitting cannot follow"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"source": SOURCE, "positions": [0], "calls": 10_000} | changes
    source: Source = given.pop("source")
    positions: list[int] = given.pop("positions")
    with pytest.raises(SpecError, match=message):
        estimate_rare_failures(source, ready(), bright(P), positions, **given)
    assert isinstance(estimate_rare_failures(SOURCE, ready(), bright(P), [0], calls=500), Rare)


DRAWS = 100


def tally(right: list[int]) -> Tally[Evaluate]:
    count = len(right)
    return Tally(
        kind=Evaluate,
        indices=np.arange(count) + 10,
        labels=np.zeros(count, dtype=np.int64),
        clean_correct=np.ones(count, bool),
        correct=np.array(right),
        draws=DRAWS,
        calls=count * DRAWS,
        micro_batch=8,
    )


def rare(positions: list[int], p: list[float], spread: float = 0.2) -> Rare:
    places, log_p = np.array(positions), np.log(p)
    return Rare(
        source="uniform",
        positions=places,
        indices=places + 10,
        log_p=log_p,
        log_low=log_p - 2 * spread,
        log_high=log_p + 2 * spread,
        limit=np.full(len(p), 6e-3),
        spread=np.full(len(p), spread),
        calls=np.full(len(p), 1000),
        status=(Status.FOUND,) * len(p),
        particles=100,
        replicates=5,
        confidence=0.95,
    )


def test_failures_seen_are_kept_and_zeros_are_filled() -> None:
    found = add_rare_failures(tally([90, 100, 100, 0, 100]), rare([2, 0, 1], [1e-6, 0.5, 1e-3]))
    assert np.allclose(found.failures, [0.1, 1e-3, 1e-6, 1.0, 0.0])
    assert found.by_splitting.tolist() == [False, True, True, False, False]
    assert found.added(np.ones(5, bool)) == pytest.approx((1e-3 + 1e-6) / 5)
    assert found.added(np.arange(5) < 2) == pytest.approx(1e-3 / 2)


def test_errors_are_of_draws_or_of_splitting() -> None:
    found = add_rare_failures(tally([90, 100, 0]), rare([1], [1e-3]))
    binomial = math.sqrt(0.1 * 0.9 / 99)
    splitting = 1e-3 * math.sqrt(math.expm1(0.04))
    assert np.allclose(found.errors, [binomial, splitting, 0.0])


def test_the_bias_is_what_is_added() -> None:
    """Over many tallies of one input with q = 0.01: `E = q + q (1 - q)^S`."""
    q, tallies = 0.01, 20_000
    right = DRAWS - np.random.default_rng(0).binomial(DRAWS, q, tallies)
    found = add_rare_failures(tally(right.tolist()), rare(list(range(tallies)), [q] * tallies))
    mean, added = found.failures.mean(), found.added(np.ones(tallies, bool))
    assert mean == pytest.approx(q + q * (1 - q) ** DRAWS, rel=0.02)
    assert added == pytest.approx(q * (1 - q) ** DRAWS, rel=0.03)
    assert mean - added == pytest.approx(q, rel=0.03)


@pytest.mark.parametrize("positions", [[7], [0]])
def test_results_of_another_part_are_refused(positions: list[int]) -> None:
    other = rare(positions, [1e-3])
    if positions == [0]:
        other.indices[0] = 99
    with pytest.raises(SpecError, match="another split"):
        add_rare_failures(tally([90, 100]), other)


FOUND = Rare(
    source="uniform",
    positions=np.array([2, 5]),
    indices=np.array([12, 15]),
    log_p=np.log([1e-3, 1e-7]),
    log_low=np.log([5e-4, 1e-8]),
    log_high=np.log([2e-3, 1e-6]),
    limit=np.array([0.02, 0.006]),
    spread=np.array([0.1, 0.5]),
    calls=np.array([400, 5000]),
    status=(Status.FOUND, Status.BELOW),
    particles=100,
    replicates=5,
    confidence=0.95,
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "rare" / "a.safetensors"
    assert read_rare(path, "run") is None
    write_rare(path, FOUND, "run")
    again = read_rare(path, "run")
    assert again is not None
    for name in RARE_ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(FOUND, name))
    others = ("source", "status", "particles", "replicates", "confidence")
    assert all(getattr(again, name) == getattr(FOUND, name) for name in others)


def test_another_run_is_refused_and_damage_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.safetensors"
    write_rare(path, FOUND, "run")
    with pytest.raises(RunFolderError, match="another run"):
        read_rare(path, "other")
    whole = path.read_bytes()
    for size in (0, 4, 60, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert read_rare(path, "run") is None
        assert f"{path} is damaged" in caplog.messages[-1]


def test_groups_are_joined_in_order() -> None:
    other = replace(FOUND, positions=np.array([7, 9]), particles=120)
    both = join_rare([FOUND, other])
    assert both.positions.tolist() == [2, 5, 7, 9]
    assert both.status == FOUND.status * 2
    assert both.particles == 100


def test_lines() -> None:
    lines = format_rare_csv({"uniform": FOUND}).splitlines()
    assert lines[0] == "index,source,p,low,high,limit,status,calls"
    assert lines[1] == "12,uniform,0.001,0.0005,0.002,0.02,found,400"
    assert lines[2] == "15,uniform,1e-07,1e-08,1e-06,0.006,below,5000"
