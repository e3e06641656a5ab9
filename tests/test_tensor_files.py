from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from nppr.tensor_files import write_tensors


def test_round_trip_and_same_bytes(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    tensors = {"b": shared, "a": shared[:3], "half": torch.ones(2, 2).half()}
    metadata = {name: name * 2 for name in "zyxwvu"}
    for name in ("one", "two"):
        write_tensors(tmp_path / "new" / name, tensors, metadata)
    assert (tmp_path / "new" / "one").read_bytes() == (tmp_path / "new" / "two").read_bytes()
    with safe_open(tmp_path / "new" / "one", framework="pt") as file:
        assert file.metadata() == metadata
        for name, tensor in tensors.items():
            assert torch.equal(file.get_tensor(name), tensor)


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_tensors(path, {"a": torch.zeros(2)}, {})
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        write_tensors(path, {"a": torch.ones(2)}, {})
    assert path.read_bytes() == before
