from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nppr.errors import RunFolderError
from nppr.study.graph import Node
from nppr.study.node_work import NodeCache, is_full_disk
from study import toys


def made(tmp_path: Path, seed: int = 0) -> tuple[NodeCache, Node]:
    cache = NodeCache(tmp_path)
    node = toys.node(seed)
    with cache.locked(node):
        folder = cache.folder(node.hash)
        (folder / "run" / "blocks").mkdir(parents=True)
        (folder / "run" / "report").write_text("numbers")
        (folder / "run" / "blocks" / "0").write_text("what it would resume from")
        cache.finish(node, [folder / "run" / "report"], 0.5)
    return cache, node


def test_a_finished_node_is_found_without_what_it_resumed_from(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    finished = cache.look_up(node).finished
    assert finished is not None
    assert finished.seconds == 0.5
    folder = cache.folder(node.hash)
    kept = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
    assert kept == {"lock", "node.json", "run/report"}
    assert not (folder / "run" / "blocks").exists()


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    found = NodeCache(tmp_path).look_up(toys.node(0))
    assert found.finished is None
    assert found.damage is None


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_truncated_record_is_not_used(tmp_path: Path, keep: int) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    path.write_bytes(path.read_bytes()[:keep])
    found = cache.look_up(node)
    assert found.finished is None
    assert found.damage
    assert "\n" not in found.damage


def test_a_changed_record_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    path.write_text(path.read_text().replace("0.5", "0.6"))
    assert cache.look_up(node).damage == "node.json does not match its hash"
    path.write_text(path.read_text().replace("0.6", "1e999"))
    assert "node.json cannot be read" in str(cache.look_up(node).damage)


def test_a_record_of_another_node_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    _, other = made(tmp_path, seed=1)
    path = cache.folder(node.hash) / "node.json"
    path.write_text((cache.folder(other.hash) / "node.json").read_text())
    assert cache.look_up(node).damage == "node.json does not match its hash"


@pytest.mark.parametrize("content", [None, "", "nmubers"], ids=["gone", "empty", "changed"])
def test_a_damaged_file_is_not_used(tmp_path: Path, content: str | None) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "run" / "report"
    path.unlink() if content is None else path.write_text(content)
    assert cache.look_up(node).damage == "run/report does not match its hash"


def test_json_of_another_shape_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    for text in ("[]", "{}", '{"checksum": 3}', '"text"', '{"checksum": "x", "key": NaN}'):
        path.write_text(text)
        assert cache.look_up(node).damage


def test_what_a_link_points_to_is_never_removed(tmp_path: Path) -> None:
    cache, node = made(tmp_path / "cache")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    (cache.folder(node.hash) / "link").symlink_to(tmp_path / "mine")
    cache.clear(node)
    assert (tmp_path / "mine" / "file").read_text() == "precious"
    assert not (cache.folder(node.hash) / "link").is_symlink()
    assert cache.look_up(node).finished is None


def test_a_full_disk_is_seen_behind_our_own_errors() -> None:
    ours = RunFolderError("cannot be written")
    ours.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert is_full_disk(ours)
    assert not is_full_disk(OSError(errno.EACCES, "denied"))
    assert not is_full_disk(None)
