import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.classifiers.training import Optimiser, TrainSettings
from nppr.classifiers.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimiser_tensors,
    save_checkpoint,
)
from nppr.classifiers.training.examples import Normalisation
from nppr.classifiers.training.outputs import Outputs
from nppr.classifiers.training.schedule import build_optimiser
from nppr.classifiers.training.standing import EpochResult, Standing
from nppr.errors import RunFolderError

SETTINGS = {"epochs": 3, "seed": 0}


def stepped(optimiser: Optimiser, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    built = build_optimiser(module.parameters(), TrainSettings(optimiser=optimiser))
    for _ in range(steps):
        built.zero_grad()
        module(torch.rand(5, 3)).square().sum().backward()
        built.step()
    return module, built


def checkpoint_of(module: nn.Module, optimiser: torch.optim.Optimizer) -> Checkpoint:
    standing = Standing(2, 1, 10, 7, 0.1 + 0.2, [EpochResult(1, 1 / 3, 0.9)])
    return Checkpoint.of(SETTINGS, Normalisation((0.1,), (0.3,)), standing, module, optimiser)


@pytest.mark.parametrize("optimiser", Optimiser)
@pytest.mark.parametrize("steps", [0, 3])
def test_round_trip(optimiser: Optimiser, steps: int, tmp_path: Path) -> None:
    module, built = stepped(optimiser, steps)
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, checkpoint_of(module, built))
    loaded = load_checkpoint(path)
    other, other_built = stepped(optimiser, 0)
    loaded.restore(other, other_built)
    assert loaded.settings == SETTINGS
    assert loaded.standing.to_json() == checkpoint_of(module, built).standing.to_json()
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, module.state_dict()[name])
    memory, kept = optimiser_tensors(built), optimiser_tensors(other_built)
    assert memory.keys() == kept.keys()
    assert all(torch.equal(memory[name], kept[name]) for name in memory)
    assert bool(memory) == (steps > 0)


def test_damage_is_always_found(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, checkpoint_of(*stepped(Optimiser.SGD, 1)))
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RunFolderError, match="cannot be read"):
            load_checkpoint(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunFolderError, match="checksum"):
        load_checkpoint(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from nppr.tensor_files import write_tensors

    path = tmp_path / "c.safetensors"
    for metadata in ({}, {"training": "{"}, {"training": "[]"}, {"training": '{"format": 99}'}):
        write_tensors(path, {"w": torch.ones(1)}, metadata)
        with pytest.raises(RunFolderError, match="cannot be read"):
            load_checkpoint(path)


def test_who_may_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "w.safetensors")
    assert outputs.begin(SETTINGS, resume=True, overwrite=False) is None
    outputs.save(checkpoint_of(*stepped(Optimiser.SGD, 1)))
    assert outputs.begin(SETTINGS, resume=True, overwrite=False) is not None
    assert outputs.begin({}, resume=False, overwrite=True) is None
    with pytest.raises(RunFolderError, match="--resume"):
        outputs.begin(SETTINGS, resume=False, overwrite=False)
    other = {**SETTINGS, "seed": 1}
    with pytest.raises(RunFolderError, match=r"another seed \(1 instead of 0\)"):
        outputs.begin(other, resume=True, overwrite=False)


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    for path in (tmp_path / "file" / "w.safetensors", tmp_path):
        with pytest.raises(RunFolderError, match="`out` must be a file"):
            Outputs(path).begin(SETTINGS, resume=False, overwrite=False)
