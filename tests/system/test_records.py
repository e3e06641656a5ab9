from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from safetensors.torch import save_file
from torch import Tensor, nn

from nppr.errors import RecordError, WriteError
from nppr.system.records import (
    add_prefix,
    compute_checksum,
    pack_optimiser,
    read_record,
    restore_optimiser,
    take_prefix,
    write_in_folder,
    write_record,
    write_tensors,
    write_whole,
)

SHARED = torch.arange(6.0)
TENSORS = {
    "b": SHARED,
    "a": SHARED[:3],
    "half": torch.ones(2, 2).half(),
    "flags": torch.tensor([True, False]),
    "one": torch.tensor(7),
    "empty": torch.zeros(0, 3),
}
RECORD: dict[str, Any] = {name: {"list": [1 / 3, None, name]} for name in "zyxwvu"}


class Pair(BaseModel):
    second: float
    first: tuple[int, ...]


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]) for name in one
    )


def test_round_trip_and_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_record(tmp_path / "new" / name, TENSORS, RECORD)
    paths = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in paths] == ["one", "two"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    tensors, record = read_record(paths[0])
    assert same(tensors, TENSORS)
    assert record == RECORD


def test_a_model_is_written_as_its_plain_values(tmp_path: Path) -> None:
    write_record(tmp_path / "a", {}, Pair(second=1 / 3, first=(1, 2)))
    _, record = read_record(tmp_path / "a")
    assert record == {"first": [1, 2], "second": 1 / 3}


def test_the_checksum_covers_names_types_shapes_numbers_and_the_record() -> None:
    known = compute_checksum(TENSORS, RECORD)
    assert known == compute_checksum(
        dict(reversed(TENSORS.items())), dict(reversed(RECORD.items()))
    )
    others: list[tuple[dict[str, Tensor], dict[str, Any]]] = [
        ({**TENSORS, "a": SHARED[1:4]}, RECORD),
        ({**TENSORS, "a": SHARED[:3].double()}, RECORD),
        ({**TENSORS, "half": torch.ones(4).half()}, RECORD),
        ({**TENSORS, "more": SHARED}, RECORD),
        ({**TENSORS, "a": TENSORS["b"], "b": TENSORS["a"]}, RECORD),
        (TENSORS, {**RECORD, "z": 1}),
    ]
    assert len({known, *(compute_checksum(*other) for other in others)}) == 1 + len(others)


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(tmp_path: Path, place: float, bit: int) -> None:
    path = tmp_path / "file"
    write_record(path, TENSORS, RECORD)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(RecordError) as caught:
        read_record(path)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not tensors", b"\xff" * 100, None])
def test_other_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordError):
        read_record(path)


def test_tensors_without_a_record_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "file", {"format": "pt"})
    with pytest.raises(RecordError, match="no entry 'checksum'"):
        read_record(tmp_path / "file")


def test_crafted_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "{", "null", "3", "[" * 100_000):
        monkeypatch.setattr("nppr.system.records._json", lambda _, text=text: text)
        write_record(tmp_path / "file", {}, {})
        with pytest.raises(RecordError):
            read_record(tmp_path / "file")


@pytest.mark.parametrize(
    "write", [write_whole, write_in_folder, lambda p, _: write_record(p, {}, {})]
)
def test_content_and_name_reach_the_disk_in_this_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, str], None],
) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def watched_sync(file: int) -> None:
        state = os.fstat(file)
        steps.append(
            "sync folder" if stat.S_ISDIR(state.st_mode) else f"sync {state.st_size} bytes"
        )
        sync(file)

    def watched_replace(old: Path, new: Path) -> None:
        steps.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    path = tmp_path / "file.json"
    write(path, "whole")
    assert steps == [f"sync {path.stat().st_size} bytes", "rename", "sync folder"]


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_record(path, {"a": torch.zeros(2)}, {})
    before = path.read_bytes()

    def full(*_: object, **__: object) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(WriteError, match="no space"):
        write_record(path, {"a": torch.ones(2)}, {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_metadata_is_written_in_order(tmp_path: Path) -> None:
    metadata = {name: name * 2 for name in "zyxwvu"}
    write_tensors(tmp_path / "file", TENSORS, metadata)
    content = (tmp_path / "file").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert list(json.loads(content[8 : 8 + length])["__metadata__"]) == sorted(metadata)


def test_prefixes_keep_groups_apart() -> None:
    tensors = add_prefix("one/", TENSORS) | add_prefix("two/", {"a": SHARED})
    assert same(take_prefix("one/", tensors), TENSORS)
    assert list(take_prefix("two/", tensors)) == ["a"]


def test_an_optimiser_goes_on_where_another_was() -> None:
    def step(parameter: nn.Parameter, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        parameter.square().sum().backward()
        optimiser.step()

    first, second = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    one, two = torch.optim.Adam([first], lr=0.1), torch.optim.Adam([second], lr=0.1)
    step(first, one)
    with torch.no_grad():
        second.copy_(first)
    kept = {name: tensor.clone() for name, tensor in pack_optimiser(one).items()}
    restore_optimiser(two, kept)
    for _ in range(3):
        step(first, one)
        step(second, two)
    assert torch.equal(first, second)


def test_a_link_in_the_place_of_a_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "a.json").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "a.json", "ours")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "a.json").read_text() == "ours"
    assert not (tmp_path / "a.json").is_symlink()
    # Nor is one in the place of the half-written file, whose name nobody can guess.
    monkeypatch.setattr("secrets.token_hex", lambda _: "0123abcd")
    (tmp_path / "a.json.0123abcd.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(WriteError, match="exists"):
        write_whole(tmp_path / "a.json", "ours")
    assert (tmp_path / "precious").read_text() == "kept"


def test_several_threads_write_one_file_and_every_read_finds_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 200_000 for number in range(3)]
    write_whole(path, contents[0])
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write_whole, path, each) for each in contents * 30]
        while not all(each.done() for each in writers):
            assert path.read_bytes() in contents
    for each in writers:
        each.result()
    assert list(tmp_path.iterdir()) == [path]
