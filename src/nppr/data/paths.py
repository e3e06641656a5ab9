"""Which layout a file or folder has, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from nppr.data.base import Data
from nppr.data.files import Files, FolderFiles, ZipFiles
from nppr.data.frames import resized
from nppr.data.guard import shown
from nppr.errors import DataError

__all__ = ["load_path"]

KINDS = (
    "CIFAR-10 or CIFAR-100 (python version), Tiny ImageNet, parquet files with images,"
    " a folder of images per class, MNIST-style idx files, or a .npz with x and y"
)
SHOWN = 4


def load_path(path: Path, split: str | None, resize: int | None) -> Data:
    """Data from a folder or a file, by what it holds."""
    if path.is_dir():
        return _load_tree(FolderFiles.of(path), path, split, resize)
    name = path.name.lower()
    if name.endswith(".npz"):
        from nppr.data.npz import load_npz

        return resized(load_npz(path, split), resize)
    if name.endswith(".parquet"):
        from nppr.data.parquet import load_parquet

        return load_parquet(path, (), split, resize)
    if name.endswith(".zip"):
        files = ZipFiles.of(path)
        return _load_tree(files.below(_wrapper(files.names)), path, split, resize)
    if name.endswith((".tar.gz", ".tgz")):
        from nppr.data.archives import read_tar
        from nppr.data.cifar import MEMBERS

        return _load_tree(read_tar(path, MEMBERS), path, split, resize)
    raise DataError(
        "`data` must be a folder or a file that ends with .npz, .parquet, .zip or .tar.gz,"
        f" got {path}. Of data in several files, give the folder."
    )


def _load_tree(files: Files, path: Path, split: str | None, resize: int | None) -> Data:
    """Data in the layout that the names of the files show."""
    found = _layouts(files.names)
    if len(found) > 1:
        places = ", ".join(files.where(prefix) for prefix, _ in found)
        raise DataError(f"`data` must be one data set, got several: {places}. Give one of them.")
    if found:
        prefix, load = found[0]
        return load(files.below(prefix), path.name, split, resize)
    parquets = [name for name in files.names if name.endswith(".parquet")]
    if parquets and isinstance(files, FolderFiles):
        from nppr.data.parquet import load_parquet

        return load_parquet(path, parquets, split, resize)
    from nppr.data.encoded import is_image
    from nppr.data.image_folder import load_image_folder

    if any(map(is_image, files.names)):
        return load_image_folder(files, path.name, split, resize)
    first = shown(files.names[:SHOWN]) or "no files that can be read"
    raise DataError(f"`data` must be {KINDS}, got {first} in {path}.")


Loader = Callable[[Files, str, str | None, int | None], Data]


def _layouts(names: Iterable[str]) -> list[tuple[str, Loader]]:
    """Folders, as prefixes of names, that hold a data set known by the names of its files."""
    folders: dict[str, set[str]] = {}
    for name in names:
        head, slash, tail = name.rpartition("/")
        if tail:
            folders.setdefault(head + slash, set()).add(tail)
    return [
        (folder, loader)
        for folder, files in sorted(folders.items())
        if (loader := _loader(folder, files))
    ]


def _loader(folder: str, files: set[str]) -> Loader | None:
    """Who reads a folder with files of these names."""
    from nppr.data.idx import is_idx

    if files & {"batches.meta", "data_batch_1", "test_batch"}:
        return _cifar_10
    if len(files & {"meta", "train", "test"}) > 1 or folder.endswith("cifar-100-python/"):
        return _cifar_100
    if "wnids.txt" in files:
        return _tiny_imagenet
    if any(map(is_idx, files)):
        return _idx
    return None


def _cifar_10(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    from nppr.data.cifar import CIFAR_10, load_cifar

    return resized(load_cifar(files, CIFAR_10, name, split), resize)


def _cifar_100(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    from nppr.data.cifar import CIFAR_100, load_cifar

    return resized(load_cifar(files, CIFAR_100, name, split), resize)


def _idx(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    from nppr.data.idx import load_idx

    return resized(load_idx(files, name, split), resize)


def _tiny_imagenet(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    from nppr.data.tiny_imagenet import load_tiny_imagenet

    return load_tiny_imagenet(files, name, split, resize)


def _wrapper(names: Iterable[str]) -> str:
    """The one folder that everything in an archive lies in, or nothing."""
    tops = {name.partition("/")[0] for name in names if "/" in name} | {
        name for name in names if "/" not in name
    }
    top = tops.pop() if len(tops) == 1 else ""
    return f"{top}/" if top and any(name.startswith(f"{top}/") for name in names) else ""
