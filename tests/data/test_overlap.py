from pathlib import Path

import numpy as np
import pytest
import torch

from data import layouts
from nppr.data import Data, Part, TensorImages, from_arrays, load_data, overlaps
from nppr.types import Evaluate, Fit, Select


def parts(first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> Data:
    def zeros(images: torch.Tensor) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.zeros(len(images), dtype=np.int64)

    return Data(
        name="parts",
        class_names=("a", "b"),
        fit=Part(Fit, TensorImages(first), np.arange(len(first)), zeros(first)),
        select=Part(Select, TensorImages(second), np.arange(len(second)), zeros(second)),
        evaluate=Part(Evaluate, TensorImages(third), np.arange(len(third)), zeros(third)),
    )


def test_each_pair_is_counted() -> None:
    x = torch.rand(12, 1, 3, 3)
    data = parts(x[:6], torch.cat([x[6:8], x[:1]]), torch.cat([x[8:], x[1:3], x[1:2], x[6:7]]))
    assert overlaps(data) == {
        ("fit", "select"): 1,
        ("fit", "evaluate"): 3,
        ("select", "evaluate"): 1,
    }
    assert set(overlaps(from_arrays(x, [0, 1] * 6)).values()) == {0}


@pytest.mark.parametrize("kind", ["tiny", "cifar"])
def test_files_are_compared_as_they_are_stored(tmp_path: Path, kind: str) -> None:
    if kind == "tiny":
        folder, train, _ = layouts.tiny_imagenet(tmp_path)
        layouts.write(folder / "val/images/val_0.JPEG", layouts.encode(train[3]))
    else:
        folder, _, _ = layouts.cifar_10(tmp_path)
        (folder / "test_batch").write_bytes((folder / "data_batch_2").read_bytes())
    found = overlaps(load_data(folder))
    assert found["fit", "evaluate"] + found["select", "evaluate"] == (1 if kind == "tiny" else 6)
    assert found["fit", "select"] == 0


def test_resizing_does_not_change_what_is_compared() -> None:
    x = torch.rand(20, 1, 4, 4)
    x[:10] = x[10:]
    plain = from_arrays(x, torch.arange(20) % 2)
    assert overlaps(plain) == overlaps(load_data(plain, resize=2))
    assert sum(overlaps(plain).values()) > 0
