import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.errors import WeightsError
from nppr.models.weight_files import Weights, load_into, read_weights
from nppr.system.records import write_tensors


def test_round_trip(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    path = tmp_path / "w.safetensors"
    write_tensors(path, module.state_dict(), {"mean": "0.5,0.25", "classes": "2"})
    weights = read_weights(path)
    assert weights.numbers("mean") == (0.5, 0.25)
    assert weights.numbers("std") is None
    other = nn.Linear(3, 2)
    load_into(other, weights)
    assert torch.equal(other.weight, module.weight)


def test_half_precision_is_read_as_the_modules(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    path = tmp_path / "w.safetensors"
    write_tensors(path, {n: t.half() for n, t in module.state_dict().items()}, {})
    load_into(module, read_weights(path))
    assert module.weight.dtype == torch.float32


def test_a_mismatch_lists_missing_unexpected_and_shapes() -> None:
    given = {"weight": torch.zeros(5, 3), "extra": torch.zeros(1)}
    with pytest.raises(WeightsError, match=r"missing bias; unexpected extra; weight is \(5, 3\)"):
        load_into(nn.Linear(3, 2), Weights(given))


class Malicious:
    """A pickle that creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.path,))


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(WeightsError, match="does not exist"):
        read_weights(path)
    for name in ("w.safetensors", "w.pt", "w"):
        for content in (b"", b"hello", b"\xff" * 100, b"PK\x03\x04" + b"x" * 50, b"\x80\x02}."):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(WeightsError):
                read_weights(tmp_path / name)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth", "w"])
def test_a_malicious_pickle_is_refused_never_executed(tmp_path: Path, name: str) -> None:
    trap, path = tmp_path / "executed", tmp_path / name
    for content in (
        Malicious(trap),
        {"weight": Malicious(trap)},
        {"state_dict": {"w": Malicious(trap)}},
    ):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(WeightsError):
            read_weights(path)
        torch.save(content, path)
        with pytest.raises(WeightsError):
            read_weights(path)
    assert not trap.exists()


@pytest.mark.parametrize("container", [None, "state_dict", "model_state", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "model.", "backbone.", "module.model."])
def test_state_dicts_in_containers_and_with_prefixes(
    tmp_path: Path, container: str | None, prefix: str
) -> None:
    module = nn.Linear(3, 2)
    named = {prefix + name: tensor for name, tensor in module.state_dict().items()}
    path = tmp_path / "w.pt"
    torch.save({container: named, "epoch": 3} if container else named, path)
    other = nn.Linear(3, 2)
    load_into(other, read_weights(path))
    assert torch.equal(other.weight, module.weight)


def test_a_pickle_of_other_things_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    for content, message in (
        ([1, 2], "got list"),
        ({}, "state dict"),
        ({"a": 1}, "other things.*a"),
    ):
        torch.save(content, path)
        with pytest.raises(WeightsError, match=message):
            read_weights(path)


def test_counters_of_batch_normalisation_may_be_missing_or_stale() -> None:
    module = nn.BatchNorm2d(3)
    given = {name: t for name, t in module.state_dict().items() if "tracked" not in name}
    load_into(nn.BatchNorm2d(3), Weights(given))
    load_into(nn.BatchNorm2d(3, track_running_stats=True), Weights(module.state_dict()))


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, nn.Linear(3, 2).state_dict(), {})
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match="must be a safetensors file"):
            read_weights(path)
    torch.save(nn.Linear(3, 2).state_dict(), path.with_suffix(".pt"))
    whole = path.with_suffix(".pt").read_bytes()
    for length in range(0, len(whole), 97):
        path.with_suffix(".pt").write_bytes(whole[:length])
        with pytest.raises(WeightsError):
            read_weights(path.with_suffix(".pt"))


def test_nan_and_bad_metadata_are_named(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, {"a": torch.tensor([float("nan")])}, {})
    with pytest.raises(WeightsError, match="NaN or infinite ones in 'a'"):
        read_weights(path)
    with pytest.raises(WeightsError, match="'mean' must be numbers"):
        Weights({}, {"mean": "half"}).numbers("mean")


def deflated(path: Path) -> Path:
    """The same archive, compressed, as torch.save never writes it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_weights_that_unpack_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nppr.system.bounded.PROGRAM", 1 << 20)
    path = tmp_path / "w.pt"
    torch.save({"weight": torch.zeros(400_000)}, path)
    assert len(read_weights(path).tensors["weight"]) == 400_000
    message = r"w.pt' is refused: it takes more than 1 MiB, the limit for .* again with torch.save"
    with pytest.raises(WeightsError, match=message):
        read_weights(deflated(path))


def test_compressed_weights_of_a_plausible_size_load(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    torch.save(module.state_dict(), tmp_path / "w.pt")
    assert torch.equal(read_weights(deflated(tmp_path / "w.pt")).tensors["weight"], module.weight)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(3, device="meta"), "dense tensors of real numbers"),
        (torch.eye(3).to_sparse(), "dense tensors of real numbers"),
        (torch.zeros(3, dtype=torch.complex64), "dense tensors of real numbers"),
        (torch.zeros(1).expand(2**33), "is refused: it takes more than 64 MiB"),
    ],
    ids=["meta", "sparse", "complex", "view"],
)
def test_tensors_that_are_not_plain_are_refused(
    tmp_path: Path, tensor: torch.Tensor, reason: str
) -> None:
    torch.save({"fc.weight": tensor}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=reason) as caught:
        read_weights(tmp_path / "w.pt")
    assert "\n" not in str(caught.value)


def test_floats_of_8_bits_are_read(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(3).to(torch.float8_e4m3fn)}, tmp_path / "w.pt")
    assert read_weights(tmp_path / "w.pt").tensors["fc.weight"].float().sum() == 3


@pytest.mark.parametrize("text", ["1", "1000000000", "9" * 5000, "ten"])
def test_a_number_of_classes_that_nobody_has_is_refused(text: str) -> None:
    with pytest.raises(WeightsError, match="from 2 to 100,000"):
        _ = Weights({}, {"classes": text}).classes
