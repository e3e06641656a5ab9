from __future__ import annotations

import pytest
import torch
from scipy.stats import kstest, truncnorm

from nppr.rare.move import SMALLEST, TARGET, adapted, proposed

NONE = slice(0, 0)


@pytest.mark.parametrize("beta", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("choosing", [NONE, slice(1, 2)])
def test_the_move_leaves_the_normal_law_as_it_is(beta: float, choosing: slice) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 20_000, 3, generator=generator)
    start = z.clone()
    for _ in range(20):
        noise = torch.randn(z.shape, generator=generator)
        switch = torch.rand(z.shape[:2], generator=generator) if choosing.stop else None
        z, _ = proposed(z, torch.tensor([beta]), noise, choosing, switch)
    for column in range(3):
        assert kstest(z[0, :, column].numpy(), "norm").pvalue > 1e-3
    covariance = torch.cov(z[0].T)
    assert torch.allclose(covariance, torch.eye(3), atol=0.04)
    moved = float((z * start).mean((0, 1))[0])
    assert moved == pytest.approx((1 - beta**2) ** 10, abs=0.04)


def test_components_are_drawn_afresh_or_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    z, noise = (torch.randn(1, 4_000, 3, generator=generator) for _ in range(2))
    switch = torch.rand(1, 4_000, generator=generator)
    moved, switching = proposed(z, torch.tensor([0.5]), noise, slice(1, 2), switch)
    assert switching.double().mean() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(moved[switching][:, 1], noise[switching][:, 1])
    assert torch.equal(moved[~switching][:, 1], z[~switching][:, 1])
    # All other coordinates take the same small step.
    other = [0, 2]
    step, _ = proposed(z, torch.tensor([0.5]), noise, NONE, None)
    assert torch.equal(moved[..., other], step[..., other])


def test_chains_above_a_level_keep_the_law_above_it() -> None:
    generator = torch.Generator().manual_seed(1)
    law = truncnorm(2.0, float("inf"))
    z = torch.tensor(law.rvs(20_000, random_state=2)).float()[None, :, None]
    beta = torch.tensor([0.5], dtype=torch.float64)
    for _ in range(10):
        noise = torch.randn(z.shape, generator=generator)
        candidates, switching = proposed(z, beta.float(), noise, NONE, None)
        taken = candidates[..., 0] > 2.0
        z = torch.where(taken[..., None], candidates, z)
        beta = adapted(beta, taken, switching)
    assert kstest(z.flatten().numpy(), law.cdf).pvalue > 1e-3
    assert taken.double().mean() == pytest.approx(TARGET, abs=0.05)


def test_steps_shrink_when_moves_fail_and_grow_when_they_succeed() -> None:
    beta = torch.full((3,), 0.5, dtype=torch.float64)
    taken = torch.tensor([[False] * 4, [True] * 4, [True, False, False, False]])
    calm = torch.zeros(3, 4, dtype=torch.bool)
    low, high, _ = adapted(beta, taken, calm).tolist()
    assert low < 0.5 < high
    # Points that tried another component do not count.
    switching = torch.tensor([[False] * 4, [False] * 4, [False, True, True, True]])
    assert adapted(beta, taken, switching)[2] == adapted(beta, taken, calm)[1]
    for _ in range(50):
        beta = adapted(beta, taken, calm)
    assert beta[0] == SMALLEST
    assert beta[1] == 1.0


def test_rows_have_their_own_step() -> None:
    z, noise = torch.ones(2, 3, 4), torch.zeros(2, 3, 4)
    moved, _ = proposed(z, torch.tensor([0.6, 1.0]), noise, NONE, None)
    assert torch.allclose(moved[0], torch.tensor(0.8))
    assert torch.equal(moved[1], noise[1])
