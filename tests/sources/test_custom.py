"""Functions of the user's as sources: what they are given, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nppr
from helpers import Linear, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.data import from_arrays
from nppr.errors import BudgetBreach, DataError, SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, frozen, prepare
from nppr.sources import PGD, Gaussian, Source
from nppr.sources.custom import CustomAttack, CustomNoise

pytestmark = pytest.mark.slow

BUDGET = Budget.linf(0.1)
DATA = two_class_data()
Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]


def fgsm(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """One step to the corner: all there is against a linear classifier."""
    moved = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved), y), moved)
    return (x + 0.1 * gradient.sign()).clamp(0, 1)


def sensor(x: Tensor, y: Tensor, draws: int) -> Tensor:  # noqa: ARG001
    """Normal noise, cut off at the budget."""
    noise = 0.1 * torch.randn(1, draws, *x.shape[1:])
    return x[:, None] + noise.clamp(-0.1, 0.1)


def test_functions_are_assessed_beside_sources_with_names() -> None:
    report = nppr.assess(
        half_classifier(),
        two_class_data(200),
        budget=BUDGET,
        sources=[CustomAttack(BUDGET, fgsm), CustomNoise(BUDGET, sensor), "gaussian", PGD(BUDGET)],
        measure=nppr.Measure(draws=40),
    )
    assert not [row.error for row in report.numbers if row.error]
    attack, noise = report.headline("fgsm", Metric.AR), report.headline("sensor", Metric.PR)
    gaussian, pgd = report.headline("gaussian", Metric.PR), report.headline("pgd", Metric.AR)
    assert attack is not None
    assert noise is not None
    assert gaussian is not None
    assert pgd is not None
    assert attack.value == pgd.value
    assert attack.draws == 1
    assert noise.draws == 40
    # The same noise of other random numbers.
    assert noise.value == pytest.approx(gaussian.value, abs=0.02)
    assert report.headline("merged", Metric.AR) is not None


def test_the_attack_decides_nothing_a_forward_pass_does() -> None:
    """An attack that returns the images as they are breaks nothing."""
    source = CustomAttack(BUDGET, lambda _model, x, _y: x, label="idle")
    tally = measure(source, Classifier(half_classifier()), DATA.evaluate)
    assert tally.correct.tolist() == tally.clean_correct.astype(int).tolist()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: x[:, :, :1], r"shape \(\d+, 1, 4, 4\), got \(\d+, 1, 1, 4\)"),
        (lambda x: x[:1], r"shape \(\d+, 1, 4, 4\), got \(1, 1, 4, 4\)"),
        (lambda x: x * torch.nan, "finite"),
        (lambda x: x / 0, "finite"),
        (lambda x: x.numpy(), "a tensor, got ndarray"),
        (lambda x: (x, x), "a tensor, got tuple"),
        (lambda x: None, "a tensor, got NoneType"),  # noqa: ARG005
    ],
)
def test_what_is_no_image_is_refused_by_name(
    answer: Callable[[Tensor], Tensor], message: str
) -> None:
    made: list[Source] = [CustomAttack(BUDGET, lambda _model, x, _y: answer(x), label="mine")]
    if "shape" not in message:

        def sample(x: Tensor, y: Tensor, draws: int) -> Tensor:
            return answer(sensor(x, y, draws))

        made.append(CustomNoise(BUDGET, sample, label="mine"))
    for source in made:
        with pytest.raises(DataError, match=f"source 'mine' must return .*{message}"):
            measure(source, Classifier(half_classifier()), DATA.evaluate, draws=4)


@pytest.mark.parametrize("size", [1, 3])
def test_noise_of_another_number_of_draws_is_refused(size: int) -> None:
    source = CustomNoise(BUDGET, lambda x, _y, _draws: x[:, None].expand(1, size, 1, 4, 4),
                         label="few")  # fmt: skip
    message = r"'few' must return images of shape \(1, 16, 1, 4, 4\)"
    with pytest.raises(DataError, match=message):
        measure(source, Classifier(half_classifier()), DATA.evaluate, draws=4)


def test_a_breach_of_the_budget_is_named_with_its_size() -> None:
    grey = evaluate_part(torch.full((4, 1, 4, 4), 0.5), [0, 1, 0, 1])
    far = CustomAttack(BUDGET, lambda _model, x, _y: x + 0.25, label="far")
    with pytest.raises(BudgetBreach, match=r"'far' must stay within linf 0.1, .* size 0.25\."):
        measure(far, Classifier(half_classifier()), grey, classes=2)
    wide = CustomNoise(
        Budget.l2(0.1), lambda x, _y, draws: x[:, None] + 0.5 * torch.ones(1, draws, 1, 1, 1),
        label="wide",
    )  # fmt: skip
    with pytest.raises(BudgetBreach, match=r"'wide' must stay within l2 0.1, .* size 2\."):
        measure(wide, Classifier(half_classifier()), grey, classes=2)


def test_a_breach_costs_the_source_its_row_only() -> None:
    far = CustomAttack(BUDGET, lambda _model, x, _y: x + 0.25, label="far")
    report = nppr.assess(
        budget=BUDGET, sources=[far, "uniform"], measure=nppr.Measure(inputs=20, draws=4)
    )
    row = report.headline("far", Metric.AR)
    assert row is not None
    assert "'far' must stay within linf 0.1" in str(row.error)
    assert report.headline("uniform", Metric.PR) is not None


class Layers(nn.Module):
    """Dropout and batch normalisation: other answers in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.drop(self.norm(x)).flatten(1))
        return logits


def layers() -> Layers:
    torch.manual_seed(0)
    made = Layers().train()
    made.norm.eval()
    return made


def test_the_module_is_the_classifier_in_eval_mode() -> None:
    known = Classifier(layers(), mean=0.4, std=0.2)
    seen: list[nn.Module] = []

    def look(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append(model)
        assert model.train() is model
        assert not model.training
        assert not any(layer.training for layer in model.modules())
        model.eval()
        assert torch.equal(model(x), model(x))  # no dropout
        inner = known.module
        assert inner is not None
        assert torch.allclose(model(x), inner((x - 0.4) / 0.2), atol=1e-6)
        first = next(model.parameters())
        assert (first.device, first.dtype) == (x.device, x.dtype)
        assert sum(each.numel() for each in model.parameters()) == 16 * 2 + 2 + 2
        assert y.dtype == torch.int64
        return x

    ready = prepare(known, torch.rand(4, 1, 4, 4), classes=2, speedups=())
    measure(CustomAttack(BUDGET, look), ready, DATA.evaluate)
    assert seen


def rude(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Turns on training, seeds PyTorch, writes to its inputs and leaves gradients behind."""
    model.train()
    torch.manual_seed(0)
    torch.randn(100)
    moved = x.clone().requires_grad_()
    F.cross_entropy(model(moved), y).backward()
    answer = x.clone()
    x.zero_()
    y.zero_()
    return answer


def careless(x: Tensor, y: Tensor, draws: int) -> Tensor:
    torch.manual_seed(0)
    answer = x[:, None].repeat(1, draws, 1, 1, 1)
    x.zero_()
    y.zero_()
    return answer


@pytest.mark.parametrize(
    "source", [CustomAttack(BUDGET, rude), CustomNoise(BUDGET, careless)], ids=["attack", "noise"]
)
def test_modes_weights_and_random_numbers_are_left_as_they_were(
    source: Source,
) -> None:
    network = layers()
    modes = [layer.training for layer in network.modules()]
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    ready = prepare(Classifier(network), torch.rand(4, 1, 4, 4), classes=2, speedups=())
    clean = measure(nppr.Uniform(Budget.linf(1e-9)), ready, DATA.evaluate, draws=1)
    torch.manual_seed(77)
    before = torch.get_rng_state()
    tally = measure(source, ready, DATA.evaluate, draws=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert tally.correct.tolist() == clean.correct.tolist()
    assert [layer.training for layer in network.modules()] == modes
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())


def test_an_attack_by_backward_leaves_no_gradients_behind() -> None:
    """As tutorials write it; what is added up in the parameters is none of its business."""
    network = layers()
    ready = prepare(Classifier(network), torch.rand(4, 1, 4, 4), classes=2, speedups=())
    measure(CustomAttack(BUDGET, rude), ready, DATA.evaluate)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_random_numbers_are_restored_where_a_function_raises() -> None:
    def failing(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
        raise ValueError("no")

    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="no"):
        measure(CustomAttack(BUDGET, failing), Classifier(half_classifier()), DATA.evaluate)
    assert torch.equal(torch.get_rng_state(), before)


def lottery(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
    """An attack whose random numbers depend on the batch."""
    return x + 0.1 * (2 * torch.rand_like(x) - 1)


def test_the_batch_size_changes_nothing() -> None:
    data = two_class_data(150)  # more than an attack gets at once
    for source in (CustomAttack(BUDGET, lottery), CustomNoise(BUDGET, sensor)):
        tallies = [
            measure(
                source,
                prepare(Classifier(half_classifier()), torch.rand(4, 1, 4, 4), classes=2,
                        micro_batch=size, speedups=()),
                data.evaluate,
                draws=20,
            )
            for size in (7, 1024)
        ]  # fmt: skip
        assert 0 < tallies[0].correct.sum() < 150 * tallies[0].draws
        for tally in tallies[1:]:
            assert np.array_equal(tally.correct, tallies[0].correct)


def test_the_seed_the_input_and_the_block_decide() -> None:
    classifier = Classifier(half_classifier())
    source = CustomNoise(BUDGET, sensor)

    def rights(seed: int, draws: int) -> list[int]:
        tally = measure(source, classifier, DATA.evaluate, draws=draws, seed=seed)
        return [int(right) for right in tally.correct]

    assert rights(0, 16) == rights(0, 16)
    assert rights(0, 64) != rights(1, 64)
    # Four blocks of the same draws would give four times the first.
    assert rights(0, 64) != [4 * right for right in rights(0, 16)]
    same = evaluate_part(torch.full((30, 1, 4, 4), 0.5), [0] * 30)
    each = measure(source, classifier, same, classes=2, draws=64).correct
    assert len(set(each.tolist())) > 3


def test_noise_sees_one_image_at_a_time_and_more_draws_extend_fewer() -> None:
    shapes: set[tuple[int, ...]] = set()

    def watch(x: Tensor, y: Tensor, draws: int) -> Tensor:
        shapes.add((*x.shape, *y.shape, draws))
        return sensor(x, y, draws)

    source = CustomNoise(BUDGET, watch)
    few, more = (
        measure(source, Classifier(half_classifier()), DATA.evaluate, draws=draws)
        for draws in (5, 16)
    )
    assert shapes == {(1, 1, 4, 4, 1, 16)}
    assert (few.correct <= more.correct).all()
    assert (more.correct - few.correct <= 11).all()


def test_attacks_see_the_normalisation_and_the_labels() -> None:
    """x in [0, 1] with labels of the part: a targeted look at both."""
    images = torch.rand(70, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(70) % 2
    seen: list[tuple[Tensor, Tensor]] = []

    def note(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
        seen.append((x.clone(), y.clone()))
        return x

    known = Classifier(Linear(torch.ones(4), 0.0), mean=0.5, std=0.5)
    data = from_arrays(images, labels, shares=(0.0, 0.0))
    measure(CustomAttack(BUDGET, note), known, data.evaluate)
    assert [len(x) for x, _ in seen] == [64, 6]
    x, y = data.evaluate.batch(np.arange(70))
    assert torch.equal(torch.cat([each for each, _ in seen]), x)
    assert torch.equal(torch.cat([each for _, each in seen]), y)


def test_plain_callables_are_attacked_too() -> None:
    module = half_classifier()
    tallies = [
        measure(CustomAttack(BUDGET, fgsm), Classifier(known), DATA.evaluate)
        for known in (module, lambda x: module(x))
    ]
    assert np.array_equal(tallies[0].correct, tallies[1].correct)
    with frozen(Classifier(lambda x: module(x))) as model:
        assert model.classifier.module is None


class Object:
    """A callable object has the name of its class."""

    def __call__(self, x: Tensor, y: Tensor, draws: int) -> Tensor:
        return sensor(x, y, draws)


def test_names() -> None:
    assert CustomAttack(BUDGET, fgsm).name == "fgsm"
    assert CustomAttack(BUDGET, fgsm, label="one-step").name == "one-step"
    assert CustomNoise(BUDGET, Object()).name == "Object"
    assert CustomNoise(BUDGET, sensor).metric is Metric.PR
    assert CustomAttack(BUDGET, fgsm).metric is Metric.AR


@pytest.mark.parametrize("label", [None, "", "a:b", "a,b", "a=b", "a/b", "a\\b", "a b"])
def test_a_lambda_needs_a_label_that_can_be_written(label: str | None) -> None:
    source = CustomNoise(BUDGET, lambda x, y, draws: sensor(x, y, draws), label)
    with pytest.raises(SpecError, match="`label` must name the source"):
        _ = source.name
    with pytest.raises(SpecError, match="`label` must name the source"):
        nppr.assess(
            budget=BUDGET, sources=[source, "uniform"], measure=nppr.Measure(inputs=20, draws=4)
        )


def test_two_of_the_same_name_or_of_a_row_are_refused() -> None:
    twice: list[str | Source] = [
        CustomNoise(BUDGET, sensor), CustomAttack(BUDGET, fgsm, label="sensor")
    ]  # fmt: skip
    with pytest.raises(SpecError, match="'sensor' twice"):
        nppr.assess(budget=BUDGET, sources=twice, measure=nppr.Measure(inputs=20))
    with pytest.raises(SpecError, match="'gaussian' twice"):
        nppr.assess(
            budget=BUDGET, sources=["gaussian", Gaussian(BUDGET)], measure=nppr.Measure(inputs=20)
        )
    with pytest.raises(SpecError, match="is reserved"):
        nppr.assess(
            budget=BUDGET,
            sources=[CustomNoise(BUDGET, sensor, label="clean")],
            measure=nppr.Measure(inputs=20),
        )


@pytest.mark.parametrize("label", ["+1+1|a", "=1", "-a", "a\x1b[2J", "a\nb", "<b>", "a,b", "a b"])
def test_a_label_that_other_programs_would_obey_is_refused(label: str) -> None:
    noise = CustomNoise(Budget.linf(0.1), lambda x, *_: x, label=label)
    with pytest.raises(SpecError, match="letters, digits"):
        _ = noise.name
