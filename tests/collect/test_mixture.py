from __future__ import annotations

import pytest
import torch

from nppr.collect.mixture import described
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Context, Given


def given_by(covariance: str, components: int = 4) -> Given:
    torch.manual_seed(0)
    family = Family(Dependency.INDEPENDENT, components=components, covariance=covariance)
    made = Distribution(family, (1, 6, 6), 2)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(0.3 * torch.randn_like(value))
        given: Given = made.mixture(Context(torch.tensor([0])))
    return given


@pytest.mark.parametrize("covariance", ["diag", "lowrank:3", "full"])
def test_covariances_are_those_of_projected_components(covariance: str) -> None:
    given = given_by(covariance)
    found = described(given.log_weights.exp(), given)
    component = given.covariance.component(given.means, given.raw, given.growth)
    drawn = component.sample((20_000,))[:, 0]
    torch.testing.assert_close(found["stds"], drawn.std(0), rtol=0.03, atol=0.0)
    assert found["covariances"].shape == (4, 16, 16)
    # The directions are not told, but lengths, angles and spreads along them are.
    centred = found["means"] - found["means"].mean(0)
    lengths = centred @ centred.T
    torch.testing.assert_close(
        found["projected"] @ found["projected"].T, lengths, rtol=1e-3, atol=1e-3
    )
    along = torch.linalg.lstsq(found["projected"][:, :3], centred).solution
    spread = torch.einsum("nkd,jd->nkj", drawn - component.mean[0], along)
    direct = torch.einsum("nki,nkj->kij", spread, spread) / len(drawn)
    torch.testing.assert_close(found["covariances"][:, :3, :3], direct, rtol=0.1, atol=0.02)


def test_directions_beyond_the_means_hold_the_largest_variances() -> None:
    given = given_by("diag", components=1)
    found = described(given.log_weights.exp(), given)
    assert float(found["projected"].abs().max()) < 1e-5
    variances = found["covariances"][0].diagonal()
    largest = found["stds"][0].square().sort(descending=True).values[:16]
    torch.testing.assert_close(variances, largest, rtol=1e-4, atol=1e-6)
