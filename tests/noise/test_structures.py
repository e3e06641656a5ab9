"""A structure is one declaration and its sampler: everything else follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.errors import SpecError
from nppr.gate.policy import parse_requirement
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.mixture import Context
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STRUCTURES, Structure, choose_length
from nppr.noise.upsample import Shape, Upsampler
from nppr.search.learned_noise import build_distribution, law_of
from nppr.search.search_record import LawRecord
from nppr.search.search_settings import default_settings, walk
from nppr.settings import Search
from nppr.sources.learned import Learned

SHAPE = (2, 3, 4)
BUDGET = Budget.linf(0.1)


class Speckle(Upsampler):
    """A latent vector of C numbers at every position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, shape[0], positions=shape[1] * shape[2])

    def forward(self, latent: Tensor) -> Tensor:
        values: Tensor = latent.unflatten(-1, (*self.shape[1:], self.shape[0]))
        return values.movedim(-1, -3)


def make_speckle(_family: Family, shape: Shape) -> Speckle:
    return Speckle(shape)


SPECKLE = Structure(
    name="speckle",
    meaning="independent at every position",
    example="speckle",
    epithet="worst speckle",
    sampler=f"{__name__}:make_speckle",
    inside=(ANY,),
    rungs=(Dependency.INDEPENDENT, Dependency.LABEL),
    recipe={"inputs": 64},
)


@pytest.fixture(autouse=True)
def speckle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRUCTURES, "speckle", SPECKLE)


def draws(size: int = 16, block: int = 0) -> DrawBlock:
    return DrawBlock(0, "evaluate", (1, 2, 3), block, size, torch.device("cpu"))


def distribution(**family: object) -> Distribution:
    torch.manual_seed(0)
    made = Family(Dependency.LABEL, components=3, structure="speckle", min_std=1e-3)
    return Distribution(made.with_(**family), SHAPE, classes=2)


CONTEXT = Context(torch.tensor([0, 1, 1]))


def test_positions_are_drawn_independently_from_one_law() -> None:
    made = distribution()
    made.narrow()
    blocks = [made.exact(CONTEXT, draws(16, block), BUDGET).detach() for block in range(250)]
    delta = torch.cat(blocks, 1)
    assert delta.shape == (3, 4000, *SHAPE)
    assert bool(BUDGET.contains(delta).all())
    places = delta[1].flatten(-2)
    assert torch.allclose(places.mean(0), places.mean((0, 2))[:, None].expand(2, 12), atol=6e-3)
    standard = (places - places.mean(0)) / places.std(0)
    between = (standard[..., 0] * standard[..., 5]).mean(0)
    assert between.abs().max() < 0.1, "a pattern that all positions share"


def test_relaxed_draws_have_gradients_and_pairs_two_sides() -> None:
    made = distribution()
    delta, _ = made.relaxed(CONTEXT, draws(2), BUDGET, tau=0.5)
    assert delta.shape == (3, 2, *SHAPE)
    delta.sum().backward()
    assert made.mixture.means.grad is not None
    moved, step, sides = made.pair(CONTEXT, draws(1), BUDGET, tau=0.5, std=0.5)
    assert moved.shape == step.shape
    assert moved.shape[:2] == (3, 1)
    assert sides.shape == (3, 2, *SHAPE)


def test_any_noise_has_one_latent_vector() -> None:
    made = distribution(structure=ANY)
    assert (made.upsampler.positions, made.upsampler.latent_dim) == (1, 24)


def test_a_search_goes_through_smaller_structures_first() -> None:
    settings = default_settings(Family(Dependency.JOINT), floors=(0.0, 0.5))
    stages = walk(settings, classes=2, shape=SHAPE)
    names = [stage.name for stage in stages[: len(settings.fitted_sets)]]
    smaller = [
        f"{rung}:{each}"
        for each in ("white", "speckle", "stationary")
        for rung in ("independent", "label")
    ]
    assert sorted(names[:6]) == sorted(smaller)
    assert names[6:] == ["independent", "label", "joint"]
    for stage in stages:
        for parent in (stages[place] for place in stage.parents):
            assert stage.family.admissible.contains(parent.family.admissible)
            assert (
                stage.family.floor <= parent.family.floor
                or stage.family.floor >= parent.family.floor
            )
    starts = {stage.name for stage in stages if not stage.parents}
    assert starts <= {"independent:white", "independent:speckle"}
    assert all(stage.recipe.inputs == 64 for stage in stages if stage.family.structure == "speckle")
    assert AdmissibleSet(Dependency.PER_INPUT, floor=0.5) in settings.sets
    assert AdmissibleSet(Dependency.PER_INPUT, "white") not in settings.sets


def test_names_settings_and_policies_carry_the_structure() -> None:
    source = Learned(BUDGET, distribution(floor=0.5))
    assert source.name == "nppr:label:speckle:floor=0.5"
    assert source.admissible == AdmissibleSet(Dependency.LABEL, "speckle", 0.5)
    found = parse_requirement("NPPR label:speckle floor 0.5 >= 0.8", BUDGET)
    assert found.admissible == source.admissible
    asked = Search(structure="speckle", dependency="label").resolve(100)
    assert [each.label for each in asked.fitted_sets] == ["independent:speckle", "label:speckle"]
    assert "independent at every position" in AdmissibleSet(Dependency.LABEL, "speckle").describe()


def test_saved_noise_keeps_its_structure() -> None:
    made = distribution()
    record = LawRecord.model_validate_json(law_of(made).model_dump_json())
    again = build_distribution(record, made.state_dict())
    own, other = (each.exact(CONTEXT, draws(), BUDGET) for each in (made, again))
    assert torch.equal(own, other)


def test_noise_saved_before_there_were_structures_may_have_any() -> None:
    known = law_of(distribution(structure=ANY)).model_dump(mode="json")
    del known["family"]["structure"]
    assert LawRecord.model_validate(known).family.structure == ANY


def test_larger_structures_contain_smaller_ones() -> None:
    assert STRUCTURES[ANY].contains("speckle")
    assert not SPECKLE.contains(ANY)
    large = AdmissibleSet(Dependency.JOINT)
    assert large.contains(AdmissibleSet(Dependency.LABEL, "speckle"))
    assert not AdmissibleSet(Dependency.JOINT, "speckle").contains(large)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ({"structure": "spekle"}, "Did you mean 'speckle'"),
        ({"structure": "speckle"}, "must be independent or label, got joint"),
    ],
)
def test_a_family_of_no_structure_is_refused(family: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Family(Dependency.JOINT, **family)  # type: ignore[arg-type]


def made(structure: str, shape: Shape = (3, 8, 8), **family: object) -> Distribution:
    torch.manual_seed(1)
    own = Family(Dependency.INDEPENDENT, structure=structure, **family)  # type: ignore[arg-type]
    count = STRUCTURES[structure].components
    return Distribution(own.with_(components=count(shape) if count else 1), shape, classes=2)


def sampled(noise: Distribution, budget: Budget, blocks: int = 40) -> Tensor:
    """Draws `(S, C, H, W)` of one input, as multiples of the radius."""
    found = [
        noise.exact(Context(torch.tensor([0])), replace(draws(16, block), indices=(1,)), budget)[0]
        for block in range(blocks)
    ]
    return torch.cat(found).detach() / budget.radius


@pytest.mark.parametrize("structure", ["white", "stationary"])
@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(1.0)])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 1, 40)])
def test_structured_noise_stays_in_the_budget_and_is_alike_at_every_position(
    structure: str, budget: Budget, shape: Shape
) -> None:
    delta = sampled(made(structure, shape), budget)
    assert bool(budget.contains(budget.radius * delta).all())
    std = delta.std(0).flatten(1)  # channels may differ, positions may not
    assert bool((std.amin(1) > 0.5 * std.amax(1)).all())
    error = delta.std() / len(delta) ** 0.5
    means = delta.mean(0)
    assert float((means - means.mean((-2, -1), keepdim=True)).abs().max()) < 5 * float(error)


def correlation(delta: Tensor, shift: int) -> float:
    """The largest correlation of a channel with any channel that many columns away."""
    centred = delta - delta.mean(0)
    moved = centred.roll(shift, -1)
    products = (centred[:, :, None] * moved[:, None]).mean((0, -2, -1))
    std = centred.square().mean((0, -2, -1)).sqrt()
    return float((products / std[:, None] / std[None]).abs().max())


def test_white_noise_is_independent_between_positions() -> None:
    delta = sampled(made("white"), BUDGET)
    assert correlation(delta, 0) > 0.9
    assert all(correlation(delta, shift) < 0.05 for shift in (1, 2, 4))


def test_stationary_noise_is_independent_from_the_correlation_length_on() -> None:
    for length in (1, 2, 5):
        delta = sampled(made("stationary", (2, 16, 16), correlation_length=length), BUDGET, 80)
        near = [correlation(delta, shift) for shift in range(1, length)]
        far = [correlation(delta, shift) for shift in range(length, 9)]
        assert max(far) < 0.03
        assert length == 1 or max(near) > 2 * max(far)


def test_a_shift_of_the_latent_noise_shifts_stationary_noise() -> None:
    shape = (2, 9, 12)
    sampler = made("stationary", shape).upsampler
    latent = torch.randn(3, *shape[1:], sampler.latent_dim)
    with torch.no_grad():
        before = sampler(latent.flatten(1))
        after = sampler(latent.roll((2, 5), (1, 2)).flatten(1))
    assert torch.allclose(before.roll((2, 5), (-2, -1)), after, atol=1e-5)


def test_the_correlation_length_fits_the_image() -> None:
    assert choose_length((3, 32, 32), None) == 9
    assert choose_length((3, 32, 12), None) == 4
    assert choose_length((1, 1, 2), None) == 1
    with pytest.raises(SpecError, match="at most the shorter side, 8 pixels, got 9"):
        made("stationary", correlation_length=9)
    with pytest.raises(SpecError, match="`correlation-length` must be a whole number >= 1, got 0"):
        Family(correlation_length=0)


@pytest.mark.parametrize("structure", ["white", "stationary"])
def test_pairs_move_all_parameters_and_leave_them_as_they_were(structure: str) -> None:
    noise = made(structure)
    before = {name: each.clone() for name, each in noise.state_dict().items()}
    context = Context(torch.zeros(12, dtype=torch.int64))
    block = replace(draws(1), indices=tuple(range(12)))
    flat, steps, sides = noise.pair(context, block, BUDGET, tau=0.5, std=0.5)
    assert all(
        torch.allclose(before[name], each, atol=1e-6) for name, each in noise.state_dict().items()
    )
    assert len(flat) == len(steps) == len(sides) == 12
    assert sides.shape == (12, 2, 3, 8, 8)
    assert not torch.equal(sides[:, 0], sides[:, 1])
    assert torch.equal(steps[0], steps[7])
    assert not torch.equal(steps[7], steps[8])
    (flat * steps).sum().backward()
    assert any(each.grad is not None and each.grad.abs().sum() > 0 for each in noise.parameters())
