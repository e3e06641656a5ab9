import pytest
import torch
from torch import Tensor

from nppr.models.formats.array_models import FixedInputModel


@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [None, 1, 3, 10])
def test_every_batch_has_the_size_and_nothing_is_added(inputs: int, size: int | None) -> None:
    sizes: list[int] = []

    def run(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch * 2

    x = torch.arange(float(inputs)).view(-1, 1)
    assert torch.equal(FixedInputModel(run, (None,), size, fewest=size or 1)(x), x * 2)
    assert set(sizes) == {size or inputs}


@pytest.mark.parametrize(("inputs", "expected"), [(1, [2]), (3, [3]), (4, [4]), (9, [4, 4, 2])])
def test_limited_batches_run_as_they_come(inputs: int, expected: list[int]) -> None:
    sizes: list[int] = []

    def run(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch * 2

    x = torch.arange(float(inputs)).view(-1, 1)
    assert torch.equal(FixedInputModel(run, (None,), 4, fewest=2)(x), x * 2)
    assert sizes == expected
