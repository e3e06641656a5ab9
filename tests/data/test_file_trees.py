import copy
from pathlib import Path

import pytest

from data import layouts
from nppr.data.file_trees import Files, FolderFiles, TarFiles, ZipFiles
from nppr.errors import DataError
from nppr.system.bounded import TEXT_LIMIT


def trees(root: Path) -> list[Files]:
    folder = root / "tree"
    for name in ("a/x.txt", "a/b/y.txt", "z.txt", ".hidden", "__MACOSX/z.txt"):
        layouts.write(folder / name, name.encode())
    return [
        FolderFiles.of(folder),
        ZipFiles.of(layouts.zipped(folder)).below("tree/"),
        TarFiles.of(layouts.tar(folder), {"x.txt", "y.txt", "z.txt"}).below("tree/"),
    ]


def test_all_trees_read_alike(tmp_path: Path) -> None:
    for files in trees(tmp_path):
        assert [name for name in files.names if not name.endswith("/")] == [
            "a/b/y.txt", "a/x.txt", "z.txt",
        ]  # fmt: skip
        below = files.below("a/").below("b/")
        assert below.names == ("y.txt",)
        assert below.read("y.txt", TEXT_LIMIT) == b"a/b/y.txt"
        assert "y.txt" in below.where("y.txt")
        with pytest.raises(DataError, match=r"nothing.txt is missing"):
            below.read("nothing.txt", TEXT_LIMIT)


def test_names_that_break_a_line_are_refused(tmp_path: Path) -> None:
    layouts.write(tmp_path / "tree" / "a\nb.txt", b"")
    with pytest.raises(DataError, match=r"cannot be shown: 'a\\nb.txt'"):
        FolderFiles.of(tmp_path / "tree")


def test_a_changed_archive_is_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    layouts.write(folder / "a.txt", b"first")
    path = layouts.zipped(folder)
    files = ZipFiles.of(path)
    assert files.read("tree/a.txt", TEXT_LIMIT) == b"first"
    layouts.write(folder / "a.txt", b"something else")
    layouts.zipped(folder)
    assert files.read("tree/a.txt", TEXT_LIMIT) == b"something else"
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        files.read("tree/a.txt", TEXT_LIMIT)


def test_no_open_file_is_held(tmp_path: Path) -> None:
    layouts.write(tmp_path / "tree" / "a.txt", b"first")
    files = ZipFiles.of(layouts.zipped(tmp_path / "tree"))
    assert copy.deepcopy(files).read("tree/a.txt", TEXT_LIMIT) == b"first"
