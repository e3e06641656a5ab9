from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from nppr.errors import RunFolderError
from nppr.study.cache import Cache, is_full_disk
from nppr.study.graph import Node


def made(tmp_path: Path, seed: int = 0) -> tuple[Cache, Node]:
    cache = Cache(tmp_path)
    node = Node("measure", "a node", {"seed": seed}, {}, {})
    with cache.held(node):
        folder = cache.folder(node.hash)
        (folder / "tally").write_text("right")
        (folder / "state").write_text("of a run")
        cache.finish(node, {"value": 0.5}, ("tally",))
    return cache, node


def test_a_finished_node_is_found_without_what_it_resumed_from(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    assert cache.look(node).results == {"value": 0.5}
    assert not (cache.folder(node.hash) / "state").exists()


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    found = Cache(tmp_path).look(Node("fit", "a fit", {}, {}, {}))
    assert found.results is None
    assert found.damage is None


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_truncated_record_is_not_used(tmp_path: Path, keep: int) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    path.write_bytes(path.read_bytes()[:keep])
    found = cache.look(node)
    assert found.results is None
    assert found.damage


def test_a_changed_result_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    path.write_text(path.read_text().replace("0.5", "0.6"))
    assert cache.look(node).damage == "node.json does not match its hash"


def test_a_record_of_another_node_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    _, other = made(tmp_path, seed=1)
    path = cache.folder(node.hash) / "node.json"
    path.write_text((cache.folder(other.hash) / "node.json").read_text())
    assert cache.look(node).damage == "node.json does not match its hash"


@pytest.mark.parametrize("content", [None, "", "rigth"], ids=["gone", "empty", "changed"])
def test_a_damaged_file_is_not_used(tmp_path: Path, content: str | None) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "tally"
    path.unlink() if content is None else path.write_text(content)
    assert cache.look(node).damage == "tally does not match its hash"


def test_json_of_another_shape_is_not_used(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    path = cache.folder(node.hash) / "node.json"
    for text in ("[]", "{}", '{"checksum": 3}', '"text"', '{"checksum": "x", "key": NaN}'):
        path.write_text(text)
        assert cache.look(node).damage


def test_numbers_that_are_not_finite_are_kept_as_none(tmp_path: Path) -> None:
    cache, node = made(tmp_path)
    results = {"loss": math.inf, "rows": [{"value": math.nan, "low": 0.5}], "pair": (1, -math.inf)}
    kept = cache.finish(node, results, ("tally",))
    assert kept == {"loss": None, "rows": [{"value": None, "low": 0.5}], "pair": [1, None]}
    assert cache.look(node).results == kept


def test_a_full_disk_is_seen_behind_our_own_errors() -> None:
    ours = RunFolderError("cannot be written")
    ours.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert is_full_disk(ours)
    assert not is_full_disk(OSError(errno.EACCES, "denied"))
    assert not is_full_disk(None)
