from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import Linear
from nppr.core.budget import Budget
from nppr.core.tally import Fit
from nppr.data import Split, StoredImages, load_data
from nppr.errors import FitError, RunFolderError
from nppr.measuring.measurement import probe
from nppr.models import Classifier, PreparedClassifier, load_classifier, prepare
from nppr.noise.covariance import make_covariance
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.mixture import Given
from nppr.noise.rungs import Dependency
from nppr.search.fitting import (
    LOSS_FUNCTIONS,
    FitProgress,
    FitState,
    Fitting,
    SignMomentum,
    StateFile,
    _draws,
    _gradients,
    _in_pieces,
    _positions,
    fit,
    negative_cross_entropy,
    optimisers_of,
    regulariser,
    soft_margin,
)
from nppr.search.search_settings import Recipe
from nppr.search.selection import CleanInputs, find_clean_inputs

RECIPE, STEPS = Recipe(inputs=16, draws=2), 6


@pytest.fixture(scope="module")
def fitting() -> Fitting:
    data = load_data("digits").limit(fit_inputs=45)
    known = load_classifier("digits-cnn", data=data)
    classifier = prepare(known, probe(data.evaluate), classes=10, micro_batch=64)
    inputs = find_clean_inputs(classifier, data.fit, features=True, keep_images=True)
    return Fitting("joint", classifier, inputs, Budget.linf(0.2), RECIPE, STEPS, seed=0)


def fresh(fitting: Fitting, seed: int = 0, floor: float = 0.0) -> FitState:
    torch.manual_seed(seed)
    family = Family(Dependency.JOINT, components=2, hidden_dim=8, label_dim=4, floor=floor)
    made = Distribution(family, (1, 8, 8), 10, fitting.inputs.features.shape[1])
    return FitState.start(made, fitting.recipe)


def sized(fitting: Fitting, micro_batch: int) -> Fitting:
    return replace(fitting, classifier=replace(fitting.classifier, micro_batch=micro_batch))


def gradients(fitting: Fitting) -> tuple[dict[str, Tensor], float, float]:
    made = fresh(fitting).distribution
    with torch.no_grad():  # so that features matter
        made.mixture.input_means.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    with fitting.classifier.frozen() as models:
        loss, pr = _gradients(fitting, made, models.fast, number=2)
    found = {name: each.grad for name, each in made.named_parameters() if each.grad is not None}
    return found, loss, pr


def equal(first: FitState, second: FitState) -> bool:
    one, two = first.distribution.state_dict(), second.distribution.state_dict()
    return (first.loss, first.pr) == (second.loss, second.pr) and all(
        torch.equal(one[name], two[name]) for name in one
    )


@pytest.mark.parametrize("micro_batch", [1, 3, 8, 64])
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_the_gradient_of_a_step_does_not_depend_on_the_micro_batch(
    micro_batch: int, strength: float, fitting: Fitting
) -> None:
    fitting = replace(fitting, recipe=replace(RECIPE, entropy=strength, diversity=strength))
    whole, whole_loss, whole_pr = gradients(sized(fitting, 10_000))
    found, loss, pr = gradients(sized(fitting, micro_batch))
    assert found.keys() == whole.keys()
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    assert pr == whole_pr
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("images", "pieces"),
    [(1, [1]), (2, [1, 1]), (24, [12, 12]), (64, [32] * 2), (129, [33] + [32] * 3)],
)
def test_a_batch_is_cut_into_two_four_or_more_equal_pieces(
    images: int, pieces: list[int], fitting: Fitting
) -> None:
    seen: list[int] = []

    def loss_of(logits: Tensor, _: Tensor) -> Tensor:
        seen.append(len(logits))
        return logits.sum()

    x, y = torch.rand(images, 1, 8, 8), torch.zeros(images, dtype=torch.long)
    with fitting.classifier.frozen() as models:
        gradient, logits = _in_pieces(models.fast, x, y, 64, loss_of)
        whole, _ = models.fast.gradient(Tensor.sum, x)
    assert seen == pieces
    assert len(logits) == images
    torch.testing.assert_close(gradient, whole)


def test_the_gradient_is_that_of_the_mean_loss_where_nothing_is_clipped(fitting: Fitting) -> None:
    assert fitting.inputs.images is not None
    grey = replace(fitting.inputs, images=0.25 + 0.5 * fitting.inputs.images)
    fitting = replace(fitting, inputs=grey)
    made = fresh(fitting).distribution
    losses = []
    with fitting.classifier.frozen() as models:
        _gradients(fitting, made, models.fast, 0)
        assert made.mixture.means.grad is not None
        slope = made.mixture.means.grad.clone()
        for step in (-1e-2, 2e-2):  # to both sides of the start
            with torch.no_grad():
                made.mixture.means.add_(step * slope / slope.norm())
            losses.append(_gradients(fitting, made, models.fast, 0)[0])
    assert (losses[1] - losses[0]) / 2e-2 == pytest.approx(float(slope.norm()), rel=0.05)


def test_the_classifier_gets_no_gradient_and_keeps_its_modes() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10)).train()
    module[1].eval()
    data = load_data("digits").limit(fit_inputs=100)
    known = Classifier(module)
    classifier = prepare(known, probe(data.evaluate), classes=10, micro_batch=16)
    inputs = find_clean_inputs(classifier, data.fit, features=True, keep_images=True)
    before = copy.deepcopy(module.state_dict())
    small = Fitting("joint", classifier, inputs, Budget.linf(0.1), RECIPE, steps=2, seed=0)
    fit(small, fresh(small))
    for form in (classifier.original, classifier.fast):
        assert isinstance(form.module, nn.Module)
        assert all(parameter.grad is None for parameter in form.module.parameters())
    assert [module.training, *(layer.training for layer in module)] == [True, True, False, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


class Failing(nn.Module):
    """A linear model whose logits are NaN while `fails` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.flatten(1))
        return logits * math.nan if self.fails else logits


def test_nan_logits_end_the_fit_at_the_last_good_state() -> None:
    torch.manual_seed(0)
    module = Failing()
    data = load_data("digits").limit(fit_inputs=100)
    known = Classifier(module)
    ready = prepare(known, probe(data.evaluate), classes=10, micro_batch=16)
    classifier: PreparedClassifier = replace(ready, fast=ready.original)
    inputs: CleanInputs[Fit] = find_clean_inputs(
        classifier, data.fit, features=True, keep_images=True
    )
    small = Fitting("joint", classifier, inputs, Budget.linf(0.1), RECIPE, steps=5, seed=0)
    good: list[FitState] = []
    saved: list[tuple[int, bool]] = []

    def progress(state: FitProgress) -> None:
        if state.step == 3:
            good.append(copy.deepcopy(step))
            module.fails = True

    step = fresh(small)
    with pytest.raises(FitError, match=r"fit of joint gave .* at step 4 of 5"):
        fit(
            small, step, progress=progress,
            save=lambda state, now: saved.append((state.number, now)),
        )  # fmt: skip
    assert equal(step, good[0])
    assert saved[-1] == (3, True)
    module.fails = False
    assert fit(small, step).number == 5


@pytest.mark.parametrize("micro_batch", [3, 64])
def test_every_input_comes_once_an_epoch(micro_batch: int, fitting: Fitting) -> None:
    some = sized(fitting, micro_batch)
    inputs = len(some.inputs)
    seen: Counter[tuple[int, int]] = Counter()
    for number in range(3 * inputs):  # 16 epochs times 3, and steps cross their ends
        before = sum(seen.values())
        for epoch, positions in _positions(some, number, 64):
            seen.update((epoch, position) for position in positions.tolist())
        assert sum(seen.values()) - before == RECIPE.inputs
    epochs = 3 * RECIPE.inputs
    assert seen == Counter({(e, p): 1 for e in range(epochs) for p in range(inputs)})


def test_a_step_may_be_larger_than_the_fit_split(fitting: Fitting) -> None:
    large = replace(fitting, recipe=replace(RECIPE, inputs=100))
    seen = np.concatenate([positions for _, positions in _positions(large, 0, 64)])
    counts = np.bincount(seen, minlength=len(fitting.inputs))
    assert counts.sum() == 100
    assert counts.max() - counts.min() <= 1


def test_draws_do_not_depend_on_the_micro_batch_and_differ_by_epoch(fitting: Fitting) -> None:
    together = _draws(fitting, np.array([4, 9, 2]), epoch=1).normal("learned", (5,))
    alone = _draws(fitting, np.array([9]), epoch=1).normal("learned", (5,))
    later = _draws(fitting, np.array([9]), epoch=2).normal("learned", (5,))
    assert torch.equal(together[1], alone[0])
    assert not torch.equal(alone, later)


def test_the_seed_decides_the_result(fitting: Fitting) -> None:
    first, second = (fit(fitting, fresh(fitting)) for _ in range(2))
    other = fit(replace(fitting, seed=1), fresh(fitting))
    assert equal(first, second)
    assert not equal(first, other)
    assert not first.distribution.training


def test_a_fit_lowers_the_loss(fitting: Fitting) -> None:
    found = fit(replace(fitting, steps=40), fresh(fitting))
    assert np.mean(found.loss[-5:]) < 0.8 * np.mean(found.loss[:5])
    assert np.mean(found.pr[-5:]) <= np.mean(found.pr[:5])


def test_progress_is_reported_every_step(fitting: Fitting) -> None:
    reported: list[FitProgress] = []
    state = fit(fitting, fresh(fitting), progress=reported.append)
    assert [each.step for each in reported] == [1, 2, 3, 4, 5, 6]
    assert {(each.stage, each.steps) for each in reported} == {("joint", 6)}
    assert [each.loss for each in reported] == state.loss
    assert [each.pr for each in reported] == state.pr


def test_an_interrupt_leaves_a_state_between_two_steps(fitting: Fitting) -> None:
    whole = fit(fitting, fresh(fitting))
    saved: list[tuple[int, bool]] = []

    def interrupt(state: FitProgress) -> None:
        if state.step == 4:
            raise KeyboardInterrupt

    cut = fresh(fitting)
    with pytest.raises(KeyboardInterrupt):
        fit(
            fitting, cut, progress=interrupt,
            save=lambda state, now: saved.append((state.number, now)),
        )  # fmt: skip
    assert saved == [(1, False), (2, False), (3, False), (4, True)]
    assert equal(fit(fitting, cut), whole)


def test_free_means_stay_within_their_bound(fitting: Fitting) -> None:
    bold = replace(fitting, recipe=replace(RECIPE, rate=50.0, bound=1.5), steps=3)
    free = replace(fitting, recipe=replace(RECIPE, rate=50.0, bound=None), steps=3)
    assert float(fit(bold, fresh(bold)).distribution.mixture.means.detach().abs().max()) == 1.5
    assert float(fit(free, fresh(free)).distribution.mixture.means.detach().abs().max()) > 1.5


def test_scales_move_by_a_tenth_and_layers_that_see_have_a_rate_of_their_own(
    fitting: Fitting,
) -> None:
    state = fresh(fitting)
    rates = {
        id(parameter): group["full"]
        for optimiser in state.optimisers
        for group in optimiser.param_groups
        for parameter in group["params"]
    }
    made = state.distribution
    assert rates[id(made.mixture.means)] == RECIPE.rate
    assert rates[id(made.raw_scale)] == pytest.approx(0.1 * RECIPE.rate)
    assert rates[id(made.mixture.label_weights.weight)] == RECIPE.head_rate
    assert len(rates) == len(list(made.parameters()))


def test_signs_of_the_momentum_are_stepped_along() -> None:
    at = nn.Parameter(torch.zeros(3))
    optimiser = SignMomentum([at], lr=0.25, momentum=0.5)
    path = []
    for slopes in ([1.0, -2.0, 0.0], [-0.5, 0.9, 1e-30], [-1.0, 0.2, 0.0]):
        at.grad = torch.tensor(slopes)
        optimiser.step()
        path.append(at.detach().tolist())
    # m = (1, -2, 0), then (0, -0.1, 1e-30), then (-1, 0.15, 5e-31)
    assert path == [[-0.25, 0.25, 0.0], [-0.25, 0.5, -0.25], [0.0, 0.25, -0.5]]
    assert optimiser.state[at]["m"].tolist() == pytest.approx([-1.0, 0.15, 5e-31])


def test_a_momentum_signs_the_free_means_only() -> None:
    made = Distribution(Family(Dependency.JOINT, hidden_dim=8), (1, 4, 4), 3, 5)
    signs, adam = optimisers_of(made, Recipe(momentum=0.9))
    assert isinstance(signs, SignMomentum)
    assert [id(each) for each in signs.param_groups[0]["params"]] == [id(made.mixture.means)]
    others = [id(each) for group in adam.param_groups for each in group["params"]]
    assert sorted(others) == sorted(
        id(each) for each in made.parameters() if each is not made.mixture.means
    )
    (alone,) = optimisers_of(made, Recipe(momentum=None))
    assert isinstance(alone, torch.optim.Adam)
    assert sum(len(group["params"]) for group in alone.param_groups) == len(others) + 1


def test_steps_are_those_of_the_falling_rate(fitting: Fitting) -> None:
    state = fresh(fitting)
    before = state.distribution.mixture.means.detach().clone()
    fit(replace(fitting, steps=1), state)
    moved = (state.distribution.mixture.means.detach() - before).abs()
    assert float(moved.max()) == pytest.approx(RECIPE.rate * RECIPE.rate_at(0, 1), rel=1e-5)
    assert float((moved > 0.99 * RECIPE.rate * RECIPE.rate_at(0, 1)).float().mean()) > 0.9


@pytest.mark.parametrize(("pixel", "mean"), [(1.0, 0.7), (0.0, -0.7), (0.5, 0.7)])
def test_gradients_pass_where_the_image_is_clipped(pixel: float, mean: float) -> None:
    # One pattern r tanh(mean) on all pixels of equal inputs of class 0, with margin w . x + b.
    w, radius = torch.tensor([1.0, -0.5, 2.0, 0.25]).view(1, 2, 2), 0.1
    images = torch.full((6, 1, 2, 2), pixel)
    split = Split(Fit, StoredImages(images.numpy()), np.arange(6), np.zeros(6, np.int64))
    classifier = prepare(Classifier(Linear(w, 0.5)), images, classes=2, micro_batch=4)
    inputs = CleanInputs(split, torch.zeros(6, 0), images, 6)
    recipe = Recipe(inputs=6, draws=2, kappa=0.25)
    family = Family(Dependency.INDEPENDENT, min_std=1e-7, scaled=False)
    made = Distribution(family, (1, 2, 2), 2)
    with torch.no_grad():
        made.mixture.means.fill_(mean)
        made.mixture.raw.fill_(-30)
    fitting = Fitting("independent", classifier, inputs, Budget.linf(radius), recipe, 1, seed=0)
    with classifier.frozen() as models:
        loss, _ = _gradients(fitting, made, models.fast, 0)
    clipped = min(1.0, max(0.0, pixel + radius * math.tanh(mean)))
    margin = clipped * float(w.sum()) + 0.5 + 0.25
    assert loss == pytest.approx(math.log1p(math.exp(margin)), rel=1e-5)
    slope = radius * (1 - math.tanh(mean) ** 2) / (1 + math.exp(-margin))
    assert made.mixture.means.grad is not None
    expected = (slope * w).flatten().tolist()
    assert made.mixture.means.grad[0].tolist() == pytest.approx(expected, rel=1e-4)


def test_where_memory_runs_out_the_micro_batch_is_halved(
    fitting: Fitting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from nppr.models import FrozenClassifier

    whole = fit(fitting, fresh(fitting))
    gradient = FrozenClassifier.gradient

    def small(
        self: FrozenClassifier, loss: object, x: Tensor, *, rough: bool
    ) -> tuple[Tensor, Tensor]:
        if len(x) > 8:
            raise MemoryError
        return gradient(self, loss, x, rough=rough)  # type: ignore[arg-type]

    monkeypatch.setattr(FrozenClassifier, "gradient", small)
    found = fit(fitting, fresh(fitting))
    assert "micro-batch of 8" in caplog.text
    np.testing.assert_allclose(found.loss, whole.loss, rtol=1e-2)


def interrupted(fitting: Fitting, file: StateFile, at: int) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(fitting, fresh(fitting), progress=interrupt, save=file.save)


@pytest.mark.parametrize("at", [1, 2, 3, STEPS - 1, STEPS])
def test_a_continued_fit_is_the_uninterrupted_one_to_the_bit(
    at: int, fitting: Fitting, tmp_path: Path
) -> None:
    whole = fit(fitting, fresh(fitting))
    file = StateFile(tmp_path / "a.safetensors", "mine")
    interrupted(fitting, file, at)
    state = fresh(fitting)
    file.restore(state)
    assert state.number == at
    assert equal(fit(fitting, state), whole)
    for first, second in zip(state.optimisers, whole.optimisers, strict=True):
        memory, other = (each.state_dict()["state"] for each in (first, second))
        assert memory.keys() == other.keys() != set()
        for number, values in memory.items():
            assert all(torch.equal(value, other[number][name]) for name, value in values.items())


def test_a_state_is_kept_on_a_timer_or_at_once(fitting: Fitting, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    state = fresh(fitting)
    StateFile(path, "mine").save(state, now=False)
    assert not path.exists()
    StateFile(path, "mine", seconds=0.0).save(state, now=False)
    assert path.exists()
    path.unlink()
    StateFile(path, "mine").save(state, now=True)
    assert path.exists()


def test_equal_states_are_equal_bytes(fitting: Fitting, tmp_path: Path) -> None:
    for name in "ab":
        state = fit(replace(fitting, steps=2), fresh(fitting))
        StateFile(tmp_path / name / "state", "mine").save(state, now=True)
    assert (tmp_path / "a" / "state").read_bytes() == (tmp_path / "b" / "state").read_bytes()


def test_no_file_and_the_file_of_another_fit_leave_a_fresh_state(
    fitting: Fitting, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    interrupted(fitting, StateFile(path, "mine"), 3)
    for file in (StateFile(path, "yours"), StateFile(tmp_path / "missing", "mine")):
        state = fresh(fitting)
        file.restore(state)
        assert equal(state, fresh(fitting))


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_state_begins_again(
    damage: str, fitting: Fitting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.safetensors"
    file = StateFile(path, "mine")
    interrupted(fitting, file, 3)
    content = path.read_bytes()
    damaged = {"cut": content[: len(content) // 2], "empty": b"", "text": b"not tensors"}
    path.write_bytes(damaged[damage])
    state = fresh(fitting)
    file.restore(state)
    assert equal(state, fresh(fitting))
    (message,) = caplog.messages
    assert message.startswith(f"{path} is damaged (")
    assert message.endswith(": that stage is fitted again")


def test_a_state_of_another_shape_is_one_clear_line(fitting: Fitting, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    file = StateFile(path, "mine")
    interrupted(fitting, file, 3)
    made = Distribution(Family(Dependency.LABEL, components=3), (1, 4, 4), 2)
    state = FitState.start(made, fitting.recipe)
    with pytest.raises(RunFolderError, match="`resume` must find complete files") as caught:
        file.restore(state)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


LOGITS = torch.tensor([[2.0, 1.0, -1.0], [0.0, 3.0, 1.0]])


def given_of(weights: list[float], means: Tensor) -> Given:
    components, latent = means.shape
    return Given(
        torch.tensor([weights]).log(),
        means[None],
        torch.zeros(1, components, latent),
        torch.ones(1, components, 1),
        make_covariance("diag", latent, 0.05),
    )


def test_margin_is_softplus_of_own_minus_best_other_plus_kappa() -> None:
    found = soft_margin(LOGITS, torch.tensor([0, 2]), 0.5)
    by_hand = [math.log1p(math.exp(2 - 1 + 0.5)), math.log1p(math.exp(1 - 3 + 0.5))]
    assert found.tolist() == pytest.approx(by_hand)


def test_a_larger_kappa_is_a_larger_loss() -> None:
    labels = torch.tensor([0, 2])
    assert bool((soft_margin(LOGITS, labels, 2.0) > soft_margin(LOGITS, labels, 0.0)).all())


def test_margin_is_never_negative_and_falls_to_zero_where_the_classification_is_wrong() -> None:
    logits = 1000 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 5
    found = soft_margin(logits, labels, 1.0)
    assert bool((found >= 0).all())
    assert bool(torch.isfinite(found).all())
    assert float(soft_margin(torch.tensor([[0.0, 500.0]]), torch.tensor([0]), 1.0)) == 0


def test_cross_entropy_lies_between_its_bound_and_zero() -> None:
    logits = torch.tensor([[0.0, 1000.0], [1000.0, 0.0], [0.3, 0.1]])
    found = negative_cross_entropy(logits, torch.tensor([0, 0, 1]), 2.0)
    by_hand = math.log(math.exp(0.1) / (math.exp(0.1) + math.exp(0.3)))
    assert found.tolist() == pytest.approx([-12.0, 0.0, by_hand], abs=1e-6)


@pytest.mark.parametrize("name", LOSS_FUNCTIONS)
def test_losses_are_smaller_where_the_classification_is_wrong(name: str) -> None:
    correct, wrong = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    label = torch.tensor([0])
    assert float(LOSS_FUNCTIONS[name](wrong, label, 1.0)) < float(
        LOSS_FUNCTIONS[name](correct, label, 1.0)
    )


def test_the_entropy_term_is_smallest_for_even_weights() -> None:
    means = torch.zeros(3, 2)
    even = float(regulariser(given_of([1 / 3] * 3, means), 1.0, 0.0))
    assert even == pytest.approx(-math.log(3))
    for weights in ([0.4, 0.3, 0.3], [0.9, 0.05, 0.05]):
        assert float(regulariser(given_of(weights, means), 1.0, 0.0)) > even


def test_diversity_is_zero_for_orthogonal_means_and_one_for_parallel_ones() -> None:
    weights = [0.5, 0.5]
    orthogonal = torch.tensor([[3.0, 0.0], [0.0, 0.2]])
    parallel = torch.tensor([[3.0, 3.0], [-1.0, -1.0]])
    assert float(regulariser(given_of(weights, orthogonal), 0.0, 1.0)) == pytest.approx(0.0)
    assert float(regulariser(given_of(weights, parallel), 0.0, 2.0)) == pytest.approx(2.0)


def test_one_component_has_no_diversity_and_nothing_costs_nothing() -> None:
    alone = given_of([1.0], torch.ones(1, 2))
    assert float(regulariser(alone, 0.0, 1.0)) == 0
    assert float(regulariser(given_of([0.9, 0.1], torch.ones(2, 2)), 0.0, 0.0)) == 0


def test_gradients_lead_to_even_weights_and_means_apart() -> None:
    logits = torch.tensor([[2.0, 0.0]], requires_grad=True)
    means = torch.tensor([[1.0, 0.1], [1.0, -0.1]], requires_grad=True)
    made = given_of([0.5, 0.5], means)
    pulled = Given(logits.log_softmax(-1), made.means, made.raw, made.growth, made.covariance)
    regulariser(pulled, 1.0, 1.0).backward()
    assert logits.grad is not None
    assert means.grad is not None
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]
    stepped = (means - 0.1 * means.grad).detach()
    apart = regulariser(given_of([0.5, 0.5], stepped), 0.0, 1.0)
    assert float(apart) < float(regulariser(given_of([0.5, 0.5], means.detach()), 0.0, 1.0))
