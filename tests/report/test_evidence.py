from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nppr.errors import RunFolderError
from nppr.report.evidence import (
    EVIDENCE,
    Evidence,
    NoiseDraws,
    NoiseLook,
    Worst,
    read_evidence,
    write_evidence,
)
from nppr.system.records import write_record

WORST = Worst(
    source="pgd",
    indices=torch.tensor([3, 1]),
    labels=torch.tensor([0, 1]),
    taken_for=torch.tensor([1, 0]),
    rates=torch.tensor([0.0, 0.5]),
    clean=torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
    delta=torch.rand(2, 1, 4, 4).half(),
    perturbed=torch.ones(2, 1, 4, 4, dtype=torch.uint8),
)
DRAWS = NoiseDraws(
    source="nppr:floor=0.5",
    indices=torch.tensor([3, 1]),
    labels=torch.tensor([0, 1]),
    many=torch.rand(2, 8, 1, 4, 4).half(),
    few=torch.rand(1, 16, 1, 4, 4).half(),
    weights=torch.rand(2, 3),
    means=torch.rand(3, 16),
    stds=torch.rand(3, 16),
    covariances=torch.rand(3, 5, 5),
)


LOOK = NoiseLook(
    source="nppr:label:white",
    index=torch.tensor(3),
    label=torch.tensor(0),
    taken_for=torch.tensor(1),
    clean=torch.zeros(1, 8, 8, dtype=torch.uint8),
    perturbed=torch.ones(1, 8, 8, dtype=torch.uint8),
    sample=torch.rand(1, 4, 4).half(),
    spectrum=torch.rand(8, 6),
    histogram=torch.rand(33),
    span=torch.tensor(1.0),
)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    full = replace(DRAWS, source="nppr", projected=torch.rand(3, 5))
    write_evidence(tmp_path, Evidence((WORST,), (DRAWS, full), looks=(LOOK,)))
    found = read_evidence(tmp_path)
    assert found is not None
    assert [each.source for each in found.worst] == ["pgd"]
    assert [each.source for each in found.draws] == ["nppr:floor=0.5", "nppr"]
    pairs: list[tuple[Any, Any]] = [
        (WORST, found.worst[0]),
        (DRAWS, found.draws[0]),
        (full, found.draws[1]),
        (LOOK, found.looks[0]),
    ]
    for before, after in pairs:
        for each in fields(before):
            if each.name != "source":
                first, second = getattr(before, each.name), getattr(after, each.name)
                assert first.dtype == second.dtype
                assert torch.equal(first, second)


def test_the_same_content_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_evidence(tmp_path / name, Evidence((WORST,), (DRAWS,)))
    assert (tmp_path / "one" / EVIDENCE).read_bytes() == (tmp_path / "two" / EVIDENCE).read_bytes()


def test_nothing_is_read_from_nothing(tmp_path: Path) -> None:
    assert read_evidence(tmp_path) is None
    write_evidence(tmp_path, Evidence())
    found = read_evidence(str(tmp_path))
    assert found is not None
    assert (found.worst, found.draws) == ((), ())


def spoil(folder: Path, damage: str) -> None:
    path = folder / EVIDENCE
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "text":
        path.write_text("not a file of tensors")
    elif damage == "format":
        write_record(path, {}, {"format": 9, "names": {}})
    elif damage == "missing":
        write_record(path, {}, {"format": 2, "names": {"worst": ["pgd"], "draws": []}})
    else:
        write_evidence(folder, Evidence((replace(WORST, rates=torch.tensor([0.0, torch.nan])),)))


@pytest.mark.parametrize("damage", ["cut", "text", "format", "missing", "nan"])
def test_a_damaged_file_gives_one_clear_line(tmp_path: Path, damage: str) -> None:
    write_evidence(tmp_path, Evidence((WORST,), (DRAWS,)))
    spoil(tmp_path, damage)
    with pytest.raises(RunFolderError, match=f"`run` must hold a readable {EVIDENCE}") as found:
        read_evidence(tmp_path)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("names", [None, [], {"worst": "abc"}, {"worst": [1]}, {"draws": 3}])
def test_names_of_another_kind_are_refused(tmp_path: Path, names: object) -> None:
    write_record(tmp_path / "evidence.safetensors", {}, {"format": 2, "names": names})
    with pytest.raises(RunFolderError, match="a list of texts"):
        read_evidence(tmp_path)
