"""The data beside the repository, where it is there."""

from pathlib import Path

import numpy as np
import pytest

from nppr.data import load_data, overlaps

SHARED = Path(__file__).parents[3] / "shared" / "data"


def here(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is not there")
    return SHARED / name


def test_cifar_10_in_parquet_files() -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    data = load_data(here("cifar10"))
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [40_000, 10_000, 10_000]
    assert data.classes == 10
    assert data.evaluate.batch(np.arange(4))[0].shape == (4, 3, 32, 32)


def test_tiny_imagenet_zip() -> None:
    data = load_data(here("tiny-imagenet-200.zip"))
    assert [len(data.fit) + len(data.select), len(data.evaluate)] == [10_000, 5_000]
    assert data.classes == 200
    assert data.evaluate.batch(np.arange(4))[0].shape == (4, 3, 64, 64)
    assert overlaps(data)["fit", "select"] == 0
