"""What attacks increase and what stress reads, against sums written out."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nppr.core.losses import log_loss, margin

logits_and_label = st.lists(
    st.floats(-30, 30, allow_nan=False, width=32), min_size=2, max_size=6
).flatmap(lambda values: st.tuples(st.just(values), st.integers(0, len(values) - 1)))


@given(logits_and_label)
def test_the_margin_is_the_best_other_class_minus_the_own(case: tuple[list[float], int]) -> None:
    values, label = case
    others = values[:label] + values[label + 1 :]
    found = margin(torch.tensor([values]), torch.tensor([label]))
    assert found.item() == np.float32(max(others)) - np.float32(values[label])


def test_the_margin_is_positive_where_the_answer_is_wrong() -> None:
    logits = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 5
    assert torch.equal(margin(logits, labels) > 0, logits.argmax(1) != labels)


def test_the_margin_pulls_two_logits_only() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(margin(logits, torch.tensor([0])).sum(), logits)
    assert gradient.tolist() == [[-1.0, 0.0, 1.0, 0.0]]


@given(logits_and_label)
def test_log_loss_is_the_log_of_the_cross_entropy(case: tuple[list[float], int]) -> None:
    values, label = case
    # log(1 + sum of exp(other - own)) keeps every digit of a loss that is nearly 0
    others = [math.exp(v - values[label]) for i, v in enumerate(values) if i != label]
    expected = math.log1p(math.fsum(others))
    found = log_loss(torch.tensor([[values]]), torch.tensor([label]))
    assert found.dtype == torch.float64
    assert math.isclose(math.exp(found.item()), expected, rel_tol=1e-6, abs_tol=1e-13)


def test_each_draw_has_its_own_loss() -> None:
    logits = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 4, 2])
    found = log_loss(logits, labels)
    assert found.shape == (3, 4)
    for row in range(3):
        for draw in range(4):
            alone = log_loss(logits[row : row + 1, draw : draw + 1], labels[row : row + 1])
            assert found[row, draw] == alone[0, 0]


def test_a_loss_of_zero_has_a_logarithm() -> None:
    found = log_loss(torch.tensor([[[1e4, 0.0]]]), torch.tensor([0]))
    assert found.item() == math.log(torch.finfo(torch.float64).tiny)
