from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from nppr.noise import Dependency, Family, Rule
from nppr.noise.distribution import Distribution
from nppr.errors import RunFolderError
from nppr.fit.loop import History  # FIXME
from nppr.fit.stages import Finished, StageFiles  # FIXME

CPU = torch.device("cpu")


def finished() -> Finished:
    torch.manual_seed(0)
    made = Distribution(Family(Dependency.JOINT, components=2, floor=0.25), (1, 4, 4), 3, 5)
    return Finished(
        stage="some",
        name="joint, best per class",
        fitted=made,
        selected=made.sharpened(Rule.CHOSEN, torch.tensor([1, 0, 1])),
        history=History([0.3, 0.1 + 0.2], [1.0, 1 / 3]),
        values={"joint": 0.5, "label": 2 / 3},
        references={"winner": "nppr", "select_values": {"nppr": 0.5}},
        fit_calls=1000,
        forward_calls=99,
        value=0.5,
    )


def test_a_finished_stage_comes_back_as_it_was(tmp_path: Path) -> None:
    files = StageFiles(tmp_path, "0-joint, floor 0.25", "run")
    assert files.load(CPU) is None
    before = finished()
    files.save(before)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    after = files.load(CPU)
    assert torch.equal(torch.rand(3), expected)  # the caller's numbers are left alone
    assert after is not None
    for field in fields(Finished):
        one, two = getattr(before, field.name), getattr(after, field.name)
        if isinstance(one, Distribution):
            assert (one.family, one.rule, one.shape) == (two.family, two.rule, tuple(two.shape))
            for name, value in one.state_dict().items():
                assert torch.equal(value, two.state_dict()[name])
        else:
            assert one == two
    assert before.record() == after.record()


def test_the_state_goes_when_the_stage_is_done(tmp_path: Path) -> None:
    files = StageFiles(tmp_path, "0-joint", "run")
    state = files.state()
    assert state is not None
    state.path.write_bytes(b"under way")
    files.save(finished())
    assert not state.path.exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_stages_have_files_of_their_own(tmp_path: Path) -> None:
    names = ("0-joint", "1-joint", "0-joint, floor 0.5", "0-joint, floor 0.25", "0-label")
    paths = set()
    for name in names:
        state = StageFiles(tmp_path, name, "run").state()
        assert state is not None
        paths.add(state.path)
    assert len(paths) == len(names)


def test_without_a_folder_nothing_is_kept() -> None:
    files = StageFiles(None, "0-joint", "run")
    files.save(finished())
    assert files.state() is None
    assert files.load(CPU) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "another run"])
def test_files_that_are_damaged_or_of_another_run_are_refused_in_one_line(
    damage: str, tmp_path: Path
) -> None:
    files = StageFiles(tmp_path, "0-joint", "run")
    files.save(finished())
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    if damage == "another run":
        files = StageFiles(tmp_path, "0-joint", "other")
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(RunFolderError, match="Delete it to fit that stage again") as caught:
        files.load(CPU)
    assert "\n" not in str(caught.value)
