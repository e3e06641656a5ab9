"""Small data sets in the layouts that are read, written as their authors write them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from nppr.data import Data, all_evaluated

Pixels = NDArray[np.uint8]


def pixels(count: int, channels: int = 3, side: int = 32, seed: int = 0) -> Pixels:
    """Random 8-bit images, `(N, C, H, W)`."""
    shape = (count, channels, side, side)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(count: int, classes: int) -> NDArray[np.int64]:
    return np.arange(count) % classes


def whole(data: Data) -> dict[str, torch.Tensor]:
    """All images of each split: nothing of the data is left unread."""
    return {split.kind.name: split.batch(np.arange(len(split)))[0] for split in data.splits}


def learned(data: Data) -> tuple[Pixels, NDArray[np.int64]]:
    """Fit and select put together again, as 8-bit pixels and labels in the order of the train split."""
    images = whole(data)
    order = np.argsort(np.concatenate([data.fit.indices, data.select.indices]))
    joined = torch.cat([images["fit"], images["select"]])[torch.from_numpy(order)]
    known = np.concatenate([data.fit.labels, data.select.labels])[order]
    return eight_bit(joined), known


def eight_bit(x: torch.Tensor) -> Pixels:
    """Floats that are 8-bit values over 255, as 8-bit values; nothing may be in between."""
    scaled = x * 255
    assert float((scaled - scaled.round()).abs().max()) < 1e-4
    values: Pixels = scaled.round().to(torch.uint8).numpy()
    return values


def encode(image: Pixels, kind: str = "PNG") -> bytes:
    """One image `(C, H, W)` as a file's content."""
    buffer = io.BytesIO()
    rows = np.moveaxis(image, 0, -1)
    Image.fromarray(rows[..., 0] if rows.shape[-1] == 1 else rows).save(buffer, kind)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cifar_10(root: Path, batch: int = 6, protocol: int = 2) -> tuple[Path, Pixels, Pixels]:
    """The folder of CIFAR-10's python version, its train pixels and its test pixels."""
    folder = root / "cifar-10-batches-py"
    train, test = pixels(5 * batch), pixels(batch, seed=1)
    meta = {"num_cases_per_batch": batch, "label_names": [f"class {n}" for n in range(3)]}
    write(folder / "batches.meta", pickle.dumps(meta, protocol))
    for number in range(5):
        rows = train[number * batch : (number + 1) * batch]
        write(folder / f"data_batch_{number + 1}", _cifar_batch(rows, "labels", 3, protocol))
    write(folder / "test_batch", _cifar_batch(test, "labels", 3, protocol))
    return folder, train, test


def cifar_100(root: Path) -> tuple[Path, Pixels, Pixels]:
    """The folder of CIFAR-100's python version; coarse labels are there to be left alone."""
    folder = root / "cifar-100-python"
    train, test = pixels(20), pixels(8, seed=1)
    meta = {"coarse_label_names": ["one"], "fine_label_names": ["a", "b", "c", "d"]}
    write(folder / "meta", pickle.dumps(meta, 2))
    write(folder / "train", _cifar_batch(train, "fine_labels", 4, 2))
    write(folder / "test", _cifar_batch(test, "fine_labels", 4, 2))
    return folder, train, test


def _cifar_batch(rows: Pixels, key: str, classes: int, protocol: int) -> bytes:
    """With the keys as bytes, as a file written by Python 2 has them."""
    batch: dict[bytes, Any] = {
        b"batch_label": b"a batch",
        key.encode(): [number % classes for number in range(len(rows))],
        b"coarse_labels": [0] * len(rows),
        b"data": rows.reshape(len(rows), -1),
        b"filenames": [f"{number}.png".encode() for number in range(len(rows))],
    }
    return pickle.dumps(batch, protocol)


def tar(folder: Path) -> Path:
    """A folder as `NAME.tar.gz` beside it."""
    path = folder.parent / f"{folder.name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def zipped(folder: Path) -> Path:
    """A folder as `NAME.zip` beside it."""
    path = folder.parent / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder.parent))
    return path


WNIDS = ("n03", "n01", "n02")


def tiny_imagenet(root: Path, kind: str = "PNG", side: int = 8) -> tuple[Path, Pixels, Pixels]:
    """Tiny ImageNet's folder, its train pixels by sorted class and its validation pixels."""
    folder = root / "tiny-imagenet-200"
    train, val = pixels(15, side=side), pixels(6, side=side, seed=1)
    write(folder / "wnids.txt", "".join(f"{wnid}\n" for wnid in WNIDS).encode())
    write(folder / "words.txt", b"n00\tentity\nn01\tfish, carp\nn02\ttoad\n")
    for number, image in enumerate(train):
        wnid = sorted(WNIDS)[number // 5]
        write(folder / "train" / wnid / "images" / f"{wnid}_{number % 5}.JPEG", encode(image, kind))
        write(folder / "train" / wnid / f"{wnid}_boxes.txt", b"")
    rows = [f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t0\t7\t7\n" for number in range(len(val))]
    write(folder / "val" / "val_annotations.txt", "".join(rows).encode())
    for number, image in enumerate(val):
        write(folder / "val" / "images" / f"val_{number}.JPEG", encode(image, kind))
    write(folder / "test" / "images" / "test_0.JPEG", encode(val[0], kind))
    return folder, train, val


def image_folder(root: Path, images: Pixels, classes: Sequence[str], kind: str = "PNG") -> Path:
    """A folder per class; image n is of class n modulo their number."""
    for number, image in enumerate(images):
        name = f"{number:03d}.{kind.lower()}"
        write(root / classes[number % len(classes)] / name, encode(image, kind))
    return root


def idx(array: NDArray[Any]) -> bytes:
    """An idx file of unsigned bytes."""
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def mnist(root: Path, packed: bool = False, dot: bool = False) -> tuple[Path, Pixels, Pixels]:
    """The four files of MNIST, its train pixels and its test pixels."""
    splits = {"train": pixels(20, 1, 7), "t10k": pixels(10, 1, 7, seed=1)}
    for split, images in splits.items():
        for what, array in (("images", images[:, 0]), ("labels", labels(len(images), 5))):
            name = f"{split}-{what}{'.' if dot else '-'}idx{array.ndim}-ubyte"
            content = idx(array)
            write(
                root / (f"{name}.gz" if packed else name),
                gzip.compress(content) if packed else content,
            )
    return root, splits["train"], splits["t10k"]


def parquet(
    path: Path,
    contents: Sequence[bytes | None],
    classes: Sequence[Any],
    names: Sequence[str] | None = ("cat", "dog"),
) -> Path:
    """A parquet file in the Hugging Face layout: images `{bytes, path}`, labels, metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"bytes": content, "path": None} for content in contents]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"img": pa.array(rows, kind), "label": pa.array(classes)})
    if names is not None:
        features = {
            "img": {"_type": "Image"},
            "label": {"_type": "ClassLabel", "names": list(names)},
        }
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


MIB = 1 << 20


def append_swelling(
    path: Path, name: str, start: bytes, size: int, announced: int | None = None
) -> Path:
    """Add a member to a zip archive: `start` and then `size` bytes of zeros, in a thousandth of that.

    Its directory entry is true unless another size is `announced`.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(start)
    for _ in range(size // MIB):
        checksum = zlib.crc32(bytes(MIB), checksum)
    member = zipfile.ZipInfo(name)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, first + again * (size // MIB) + packer.flush())
        member.compress_type = zipfile.ZIP_DEFLATED
        member.file_size = len(start) + size if announced is None else announced
        member.CRC = checksum
    return path


@contextmanager
def little_memory(most: int = 16 * MIB) -> Iterator[None]:
    """Fails where the block takes more memory than that at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def undivided(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels in their first order."""
    split = all_evaluated(data).evaluate
    return split.batch(np.arange(len(split)))
