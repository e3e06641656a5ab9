import pytest
import torch

from nppr.data import load_data
from nppr.errors import DataError, SpecError


def test_names_pairs_and_data_objects() -> None:
    digits = load_data("digits")
    assert load_data(digits) is digits
    assert load_data((torch.rand(10, 1, 2, 2), torch.arange(10) % 2)).classes == 2


def test_unknown_name_suggests() -> None:
    with pytest.raises(SpecError, match="Did you mean 'digits'"):
        load_data("digit")


def test_other_objects_are_named() -> None:
    with pytest.raises(DataError, match="got int"):
        load_data(3)  # type: ignore[arg-type]
