import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.errors import RunFolderError
from nppr.system.records import add_prefix, pack_optimiser, write_record, write_tensors
from nppr.train import EpochResult, Optimiser, Outputs, TrainSettings
from nppr.train.training_files import Checkpoint, TrainingStanding
from nppr.train.training_loop import build_optimiser
from nppr.train.training_settings import Value

SETTINGS: dict[str, Value] = {"epochs": 3, "seed": 0}


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
    finished = [EpochResult(1, 1 / 3, 0.9)]
    model, memory = module.state_dict(), pack_optimiser(optimiser)
    return Checkpoint(
        settings=SETTINGS,
        threads=1,
        mean=(0.1,),
        std=(0.3,),
        standing=TrainingStanding(
            epoch=2, step=1, seen=10, correct=7, loss=0.1 + 0.2, finished=finished
        ),
        tensors=add_prefix("model/", model) | add_prefix("optimiser/", memory),
    )


@pytest.mark.parametrize("optimiser", Optimiser)
@pytest.mark.parametrize("steps", [0, 3])
def test_round_trip(optimiser: Optimiser, steps: int, tmp_path: Path) -> None:
    module, built = stepped(optimiser, steps)
    path = tmp_path / "c.safetensors"
    checkpoint_of(module, built).save(path)
    loaded = Checkpoint.load(path)
    other, other_built = stepped(optimiser, 0)
    loaded.restore(other, other_built)
    assert loaded.model_dump() == checkpoint_of(module, built).model_dump()
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, module.state_dict()[name])
    memory, kept = pack_optimiser(built), pack_optimiser(other_built)
    assert memory.keys() == kept.keys()
    assert all(torch.equal(memory[name], kept[name]) for name in memory)
    assert bool(memory) == (steps > 0)


def test_damage_is_always_found(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    checkpoint_of(*stepped(Optimiser.SGD, 1)).save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RunFolderError, match="cannot be read"):
            Checkpoint.load(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunFolderError, match="checksum"):
        Checkpoint.load(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    checkpoint = checkpoint_of(*stepped(Optimiser.SGD, 1))
    for name, value in (("format", 99), ("standing", []), ("threads", "many"), ("settings", None)):
        write_record(path, checkpoint.tensors, {**checkpoint.model_dump(), name: value})
        with pytest.raises(RunFolderError, match=f"cannot be read.*{name}"):
            Checkpoint.load(path)
    for metadata in ({}, {"record": "{}"}, {"record": "[]", "checksum": "0"}):
        write_tensors(path, checkpoint.tensors, metadata)
        with pytest.raises(RunFolderError, match=r"cannot be read: (no entry|its checksum)"):
            Checkpoint.load(path)


def test_when_a_checkpoint_is_continued(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "w.safetensors")
    assert outputs.begin(SETTINGS, resume=True, overwrite=False) is None
    checkpoint_of(*stepped(Optimiser.SGD, 1)).save(outputs.checkpoint)
    assert outputs.begin(SETTINGS, resume=True, overwrite=False) is not None
    assert outputs.begin({}, resume=False, overwrite=True) is None
    with pytest.raises(RunFolderError, match="--resume"):
        outputs.begin(SETTINGS, resume=False, overwrite=False)
    other = {**SETTINGS, "seed": 1}
    with pytest.raises(RunFolderError, match="got seed 1 instead of 0"):
        outputs.begin(other, resume=True, overwrite=False)


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    for path in (tmp_path / "file" / "w.safetensors", tmp_path):
        with (
            pytest.raises(RunFolderError, match="`out` must be a file"),
            Outputs(path).locked(),
        ):
            pass


def test_what_a_killed_training_left_is_removed(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "w.safetensors")
    left = tmp_path / "w.checkpoint.safetensors.0123abcd.partial"
    left.write_text("{")
    (tmp_path / "other.safetensors.0123abcd.partial").write_text("precious")
    with outputs.locked():
        assert (tmp_path / "w.lock").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["other.safetensors.0123abcd.partial"]


def test_a_training_that_has_ended_is_not_begun_again(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "w.safetensors")
    epochs = [{"epoch": 1, "loss": 0.5, "accuracy": 0.75}]
    log = {"settings": SETTINGS, "train": {"epochs": epochs}, "evaluate": {"accuracy": 0.5}}
    assert outputs.read_finished(SETTINGS) is None
    outputs.finish({"a": torch.zeros(1)}, {}, log)
    assert outputs.read_finished(SETTINGS) == ((EpochResult(1, 0.5, 0.75),), 0.5)
    assert outputs.read_finished({**SETTINGS, "seed": 1}) is None
    for text in ("", "[]", '{"settings": {}}', json.dumps({**log, "evaluate": None})):
        outputs.log.write_text(text)
        assert outputs.read_finished(SETTINGS) is None
