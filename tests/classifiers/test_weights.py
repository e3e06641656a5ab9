import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.classifiers.weights import Weights, load_into, read_weights, write_weights
from nppr.errors import WeightsError


def test_round_trip(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights(module.state_dict(), {"mean": "0.5,0.25", "classes": "2"}))
    weights = read_weights(path)
    assert weights.numbers("mean") == (0.5, 0.25)
    assert weights.numbers("std") is None
    other = nn.Linear(3, 2)
    load_into(other, weights)
    assert torch.equal(other.weight, module.weight)


def test_half_precision_is_read_as_the_modules(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights({n: t.half() for n, t in module.state_dict().items()}))
    load_into(module, read_weights(path))
    assert module.weight.dtype == torch.float32


def test_a_mismatch_lists_missing_unexpected_and_shapes() -> None:
    given = {"weight": torch.zeros(5, 3), "extra": torch.zeros(1)}
    with pytest.raises(WeightsError, match=r"missing bias; unexpected extra; weight is \(5, 3\)"):
        load_into(nn.Linear(3, 2), Weights(given))


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, ("/tmp/never-created-by-nppr", "w"))  # type: ignore[return-value]


def test_files_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(WeightsError, match="does not exist"):
        read_weights(path)
    for content in (b"", b"hello", pickle.dumps(Malicious()), b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(WeightsError, match="must be a safetensors file"):
            read_weights(path)
    assert not Path("/tmp/never-created-by-nppr").exists()


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights(nn.Linear(3, 2).state_dict()))
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match="must be a safetensors file"):
            read_weights(path)


def test_nan_and_bad_metadata_are_named(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights({"a": torch.tensor([float("nan")])}))
    with pytest.raises(WeightsError, match="NaN or Inf in 'a'"):
        read_weights(path)
    with pytest.raises(WeightsError, match="'mean' must be numbers"):
        Weights({}, {"mean": "half"}).numbers("mean")
