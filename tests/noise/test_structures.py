"""A structure is one declaration and its sampler: everything else follows from them."""

from __future__ import annotations

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
from nppr.noise.structures import ANY, STRUCTURES, Structure
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
    threat="speckle",
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
    means, step, sides = made.pair(CONTEXT, draws(1), BUDGET, tau=0.5, std=0.5)
    assert means.shape == step.shape == (3, 12, 2)
    assert sides.shape == (3, 2, *SHAPE)


def test_any_noise_has_one_latent_vector() -> None:
    made = distribution(structure=ANY)
    assert (made.upsampler.positions, made.upsampler.latent_dim) == (1, 24)


def test_a_search_goes_through_smaller_structures_first() -> None:
    settings = default_settings(Family(Dependency.JOINT), floors=(0.0, 0.5))
    stages = walk(settings, classes=2, shape=SHAPE)
    assert [stage.name for stage in stages[:5]] == [
        "independent:speckle", "label:speckle", "independent", "label", "joint",
    ]  # fmt: skip
    assert [stage.parents for stage in stages[:5]] == [(), (0,), (), (2,), (3,)]
    assert [stage.parents for stage in stages[5:]] == [(0,), (5, 1), (2,), (7, 3), (8, 4)]
    assert all(stage.recipe.inputs == 64 for stage in stages if stage.family.structure == "speckle")
    for stage, calls in zip(stages[:5], [settings.calls // 5] * 5, strict=True):
        assert abs(stage.calls - calls) <= 2 * settings.step_calls
    assert len(settings.sets) == 12
    assert AdmissibleSet(Dependency.PER_INPUT, floor=0.5) in settings.sets


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
