"""Give nppr files that were made to harm: each must be refused in one line, or do no harm.

    python benchmarks/crafted_files.py

Pickles that run code, archives and tables that leave their folder or explode, files that never end,
ONNX models with data elsewhere, names that HTML, LaTeX, spreadsheets or terminals would obey, and links
and foreign folders in the place of a run that is overwritten.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import pickle
import resource
import signal
import sys
import tarfile
import tempfile
import traceback
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from nppr.cli import console, run

MEMORY = 1 << 30
"""What a case may take above what the process has taken before."""

PATIENCE = 120
"""Seconds after which something that waits for a FIFO is ended by an alarm."""

SECONDS = 200
"""Of the processor, after which a case hangs: a busy machine makes no fault."""

WAIT_SECONDS = 1200
"""Of the clock, for what waits and takes no processor time."""

EVIL = "<script>alert(1)</script>\x1b[2J"
FORMULA = "=cmd|' /C calc'!A0"
CASES: dict[str, Callable[[Path], None]] = {}
TINY = ("--inputs", "6", "--draws", "2", "--sources", "uniform", "--batch-size", "8", "--quiet")


def case(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """Put a case on the list."""
    CASES[function.__name__.removeprefix("_")] = function
    return function


def command(*arguments: str | Path) -> tuple[int, str]:
    """The exit code of a command and what it prints."""
    text = io.StringIO()
    console.out.file = console.err.file = text
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = run([str(each) for each in arguments])
    return code, text.getvalue()


def refused(*arguments: str | Path) -> str:
    """The one line with which a command refuses something."""
    code, text = command(*arguments)
    assert code == 2, (code, text)
    assert len(text.strip().splitlines()) == 1, text
    assert "\x1b" not in text, text
    return text


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@case
def _pickled_weights(place: Path) -> None:
    saves: list[Callable[[object, Path], None]] = [torch.save, _dump]
    for number, save in enumerate(saves):
        path, marker = place / f"{number}.pt", place / "ran"
        save({"state_dict": {"a": Bomb(marker)}}, path)
        assert "could run code" in refused("doctor", "--weights", path, "--inputs", "6")
        assert not marker.exists()


def _dump(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))


@case
def _pickled_cifar(place: Path) -> None:
    folder, marker = place / "cifar-10-batches-py", place / "ran"
    folder.mkdir()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"):
        _dump({b"data": Bomb(marker), b"labels": [0]}, folder / name)
    refused("assess", "--data", folder, "--eps", "0.1", *TINY, "--out", place / "out")
    assert not marker.exists()


@case
def _pickled_arrays(place: Path) -> None:
    path, marker = place / "a.npz", place / "ran"
    np.savez(path, x=np.array([Bomb(marker)], dtype=object), y=np.zeros(1, np.int64))
    refused("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")
    assert not marker.exists()


@case
def _pickled_program(place: Path) -> None:
    path, marker = place / "model.pt2", place / "ran"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("model/data.pkl", "archive_format", "data/weights/model.pt", "version"):
            archive.writestr(name, pickle.dumps(Bomb(marker)))
    refused("doctor", "--model", path, "--inputs", "6")
    assert not marker.exists()


@case
def _swelling_arrays(place: Path) -> None:
    path = place / "a.npz"
    shape = b"{'descr': '|u1', 'fortran_order': False, 'shape': (10000, 3, 200, 200), }"
    header = b"\x93NUMPY\x01\x00v\x00" + shape
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.ljust(127) + b"\n")
        for _ in range(150):
            member.write(bytes(8 << 20))
    with zipfile.ZipFile(path, "a") as archive:
        labels = io.BytesIO()
        np.save(labels, np.zeros(10_000, np.int64))
        archive.writestr("y.npy", labels.getvalue())
    refused("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")


@case
def _swelling_archive(place: Path) -> None:
    path = place / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = (400 << 20) if name == "data_batch_1" else 1000
            archive.addfile(member, _Zeros())
    refused("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")


class _Zeros(io.RawIOBase):
    """A file of nothing but zeros."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


def _table(path: Path, rows: list[dict[str, Any]], groups: int = 1, **options: Any) -> Path:
    """A parquet file with these images in each of its row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    labels = [number % 2 for number in range(len(rows))]
    table = pa.table({"image": pa.array(rows, kind), "label": labels})
    path.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(path, table.schema, compression="zstd", **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


@case
def _swelling_tables(place: Path) -> None:
    for repeated in (True, False):
        path = place / "a.parquet"
        rows = [{"bytes": bytes(1 << 20), "path": None}] * 25
        _table(path, rows, groups=16, use_dictionary=repeated)
        assert path.stat().st_size < 200_000
        text = refused("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")
        assert "takes more than 256 MiB" in text, text
        text = refused("assess", *TINY, "--slices", path, "--out", place / "out")
        assert "takes more than 256 MiB" in text, text


@case
def _rows_that_leave_their_folder(place: Path) -> None:
    secret = place / "secret.png"
    Image.new("L", (8, 8)).save(secret)
    (place / "data").mkdir()
    (place / "data" / "link.png").symlink_to(secret)
    for name in (
        str(secret),
        "../secret.png",
        "link.png",
        "/dev/zero",
        f"{place}/data/../secret.png",
    ):
        path = _table(place / "data" / "train.parquet", [{"bytes": None, "path": name}] * 40)
        for data in (path, path.parent, f"hf:{path.parent}"):
            text = refused("assess", "--data", data, "--eps", "0.1", *TINY, "--out", place / "out")
            assert "must stay in its folder" in text, text
    assert not list(place.rglob("evidence.safetensors"))


@case
def _links_out_of_a_folder(place: Path) -> None:
    (place / "elsewhere").mkdir()
    for name in ("a", "b"):
        (place / "photos" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (8, 8)).save(place / "photos" / name / f"{number}.png")
    (place / "photos" / "b" / "more").symlink_to(place / "elsewhere")
    for data in (place / "photos", "/proc/self"):
        text = refused("assess", "--data", data, "--eps", "0.1", *TINY, "--out", place / "out")
        assert "must stay in its folder" in text, text


@case
def _files_that_never_end(place: Path) -> None:
    for kind in ("npz", "zip", "tar.gz", "parquet", "csv", "txt", "toml", "safetensors"):
        os.mkfifo(place / f"a.{kind}")
    for folder in ("run", "out", "photos/a"):
        (place / folder).mkdir(parents=True)
    for fifo in ("run/report.json", "out/run.json", "photos/a/1.png"):
        os.mkfifo(place / fifo)
    for number in range(8):
        (place / "photos" / "b").mkdir(exist_ok=True)
        Image.new("L", (8, 8)).save(place / "photos" / "b" / f"{number}.png")
    named = _table(place / "rows" / "a.parquet", [{"bytes": None, "path": "1.png"}] * 40)
    os.mkfifo(named.with_name("1.png"))
    again = ("assess", "--eps", "0.1", *TINY, "--out", place / "new")
    signal.alarm(PATIENCE)
    for data in ("a.npz", "a.zip", "a.tar.gz", "a.parquet", "photos", named):
        refused(*again, "--data", place / data)
    for option, name in (("slices", "a.csv"), ("slices", "a.parquet"), ("class-order", "a.txt")):
        refused(*again, f"--{option}", place / name)
    refused("gate", place / "a.toml")
    refused("study", place / "a.toml", "--plan")
    refused("evaluate", "--distribution", place / "a.safetensors", "--out", place / "new")
    refused("report", place / "run")
    refused("assess", *TINY, "--out", place / "out")
    signal.alarm(0)


@case
def _image_of_a_billion_pixels(place: Path) -> None:
    folder = place / "photos"
    for name in "ab":
        (folder / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (8, 8)).save(folder / name / f"{number}.png")
    size = (50_000).to_bytes(4, "big")
    chunk = b"IHDR" + size * 2 + bytes((8, 0, 0, 0, 0))
    packed = b"IDAT" + zlib.compress(bytes(1 << 20))
    content = b"\x89PNG\r\n\x1a\n"
    for each in (chunk, packed, b"IEND"):
        content += (len(each) - 4).to_bytes(4, "big") + each + zlib.crc32(each).to_bytes(4, "big")
    (folder / "a" / "0.png").write_bytes(content)
    refused(
        "assess", "--data", folder, "--eps", "0.1", "--resize", "8", *TINY, "--out", place / "out"
    )


@case
def _archive_that_leaves_its_folder(place: Path) -> None:
    inner = place / "in"
    inner.mkdir()
    image = io.BytesIO()
    Image.new("L", (8, 8)).save(image, "PNG")
    path = inner / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../../up.png", "/abs.png", "a/../../../x.png", "a/0.png", "b/0.png"):
            archive.writestr(name, image.getvalue())
    before = sorted(str(each) for each in place.rglob("*"))
    command("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")
    after = sorted(str(each) for each in place.rglob("*") if "/out" not in str(each))
    assert before == after, after


@case
def _link_in_an_archive(place: Path) -> None:
    (place / "secret").write_bytes(b"secret")
    path = place / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(place / "secret")
            archive.addfile(member)
    refused("assess", "--data", path, "--eps", "0.1", *TINY, "--out", place / "out")


@case
def _onnx_with_data_elsewhere(place: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    (place / "secret.bin").write_bytes(np.ones((64, 10), np.float32).tobytes())
    (place / "in").mkdir()
    for where in (str(place / "secret.bin"), "../secret.bin"):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 10])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", where), ("offset", "0"), ("length", "2560")):
            entry = weight.external_data.add()
            entry.key, entry.value = key, value
        shape: list[str | int | None] = ["n", 1, 8, 8]
        graph = helper.make_graph(
            [
                helper.make_node("Flatten", ["x"], ["f"]),
                helper.make_node("MatMul", ["f", "w"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
            [weight],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path = place / "in" / "model.onnx"
        path.write_bytes(model.SerializeToString())
        assert onnx is not None
        refused("doctor", "--model", path, "--inputs", "6")


def _evil_run(place: Path) -> Path:
    """A run whose data, classes, slices and sources have names that other programs would obey."""
    images = np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32)
    np.savez(place / "a.npz", x=images, y=np.arange(40) % 10)
    lines = [f"{FORMULA},weather", *(f"{EVIL if n % 2 else FORMULA},a" for n in range(40))]
    (place / "slices.csv").write_text(
        "\n".join(lines).replace(f"{FORMULA},weather", "kind,weather")
    )
    out = place / "out"
    code, text = command(
        "assess", "--data", place / "a.npz", "--eps", "0.1", *TINY, "--out", out,
        "--slices", place / "slices.csv",
    )  # fmt: skip
    assert code == 0, text
    report = json.loads((out / "report.json").read_text())
    report["data"]["name"] = report["classifier"]["name"] = EVIL
    report["data"]["class_names"] = [FORMULA, EVIL, r"\input{/etc/passwd}", *map(str, range(3, 10))]
    report["flags"].append(
        {"id": "few-inputs", "source": EVIL, "message": EVIL, "severity": "note"}
    )
    (out / "report.json").write_text(json.dumps(report))
    return out


@case
def _names_in_a_page(place: Path) -> None:
    out = _evil_run(place)
    code, text = command("report", out, "--format", "html")
    assert code == 0, text
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page + text
    for kind in ("safety-case", "technical-documentation", "cyclonedx"):
        command("export", out, "--to", kind)
    for path in (out / "exports").rglob("*"):
        assert "<script>alert" not in path.read_text() or path.suffix == ".json", path
        assert "\x1b" not in path.read_text(), path


@case
def _names_in_tables(place: Path) -> None:
    out = _evil_run(place)
    for kind in ("csv", "latex", "md", "json"):
        code, text = command("report", out, "--format", kind)
        assert code == 0, text
        assert "\x1b" not in text, (kind, text)
    code, text = command("compare", out, out, "--out", place / "compare", "--quiet")
    for path in sorted((place / "compare").glob("*")):
        content = path.read_text()
        assert "\x1b" not in content, path
        assert path.suffix != ".html" or "<script>alert" not in content
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
            assert not [cell for cell in cells if cell[:1] in "=+@" and cell], path


@case
def _nested_json(place: Path) -> None:
    out = _evil_run(place)
    for name in ("report.json", "run.json", "manifest.json"):
        path = out / name
        sound = path.read_text()
        path.write_text("[" * 200_000)
        for arguments in (("report", out), ("assess", "--eps", "0.1", *TINY, "--out", out)):
            code, text = command(*arguments)
            assert code == 2 or name != "report.json", text
            assert "Traceback" not in text
        path.write_text(sound)


@case
def _links_in_a_run(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    files = [precious / name for name in ("a", "report.html", "report.json", "blocks")]
    for path in files:
        path.write_text("kept")
    again = ("assess", *TINY, "--no-page", "--out", place / "out", "--overwrite")
    assert command(*again)[0] == 0
    for name in (
        "report.json",
        "report.html",
        "lock",
        "per_input.csv",
        "manifest.json",
        "run.json",
    ):
        path = place / "out" / name
        path.unlink(missing_ok=True)
        path.symlink_to(precious / "a")
        command(*again)
        assert [each.read_text() for each in files] == ["kept"] * 4, name
        path.unlink(missing_ok=True)


@case
def _manifest_that_lists_foreign_files(place: Path) -> None:
    (place / "precious").write_text("kept")
    again = ("assess", *TINY, "--no-page", "--out", place / "out", "--overwrite")
    assert command(*again)[0] == 0
    for name in ("../precious", str(place / "precious"), "a/../../precious"):
        content = {"nppr": "run", "format": 1, "files": ["report.json", name]}
        (place / "out" / "manifest.json").write_text(json.dumps(content))
        refused(*again)
        assert (place / "precious").read_text() == "kept"


@case
def _foreign_folders(place: Path) -> None:
    (place / "photos").mkdir()
    (place / "photos" / "report.json").write_text("kept")
    for more in ((), ("--resume",), ("--overwrite",)):
        refused("assess", *TINY, "--out", place / "photos", *more)
    assert [each.name for each in (place / "photos").iterdir()] == ["report.json"]
    assert (place / "photos" / "report.json").read_text() == "kept"


@case
def _code_named_by_a_study(place: Path) -> None:
    (place / "evil.py").write_text(f"open({str(place / 'ran')!r}, 'w')\ndef make(): ...\n")
    (place / "s.toml").write_text(
        f'name = "a"\n[[data]]\nname = "d"\nspec = "digits"\n[[classifiers]]\nname = "c"\n'
        f'model = "{place / "evil.py"}:make"\n[[grids]]\nfit_radii = ["0.1"]\nsources = ["uniform"]\n'
        '[[tables]]\nname = "t"\nrows = ["classifier"]\ncolumns = [{ header = "a", where = { source ='
        ' "uniform" } }]\n'
    )
    refused("study", place / "s.toml", "--out", place / "out", "--cache", place / "cache")
    command("study", place / "s.toml", "--plan")
    assert not (place / "ran").exists()


@case
def _code_named_by_a_policy(place: Path) -> None:
    (place / "evil.py").write_text(f"open({str(place / 'ran')!r}, 'w')\ndef make(): ...\n")
    for key in ("model", "feature_model"):
        text = f'{key} = "{place / "evil.py"}:make"\nrequire = ["PR uniform >= 0.5"]\n'
        (place / "policy.toml").write_text(text)
        assert "run-code" in refused("gate", place / "policy.toml")
        assert not (place / "ran").exists()


def run_case(name: str) -> str | None:
    """What went wrong with a case, in a process of its own with little memory, or None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(WAIT_SECONDS)
        problem = ""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            try:
                CASES[name](Path(place))
            except BaseException:
                problem = " | ".join(traceback.format_exc(limit=-4).splitlines()[1:])[-1200:]
        os.write(writing, problem.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        problem = pipe.read()
    _, status = os.waitpid(child, 0)
    return problem or (f"it died with status {status}" if status else None)


def main() -> int:
    """Try all cases and print what went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), help="one case only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [options.case] if options.case else list(CASES)
    with tempfile.TemporaryDirectory() as place:  # loads what every case needs, before they fork
        command("assess", *TINY, "--out", place)
    found = {name: run_case(name) for name in chosen}
    for name, problem in found.items():
        print(f"{'ok   ' if problem is None else 'FAULT'} {name} {problem or ''}")
    bad = sum(problem is not None for problem in found.values())
    print(f"{len(found)} crafted cases: {bad} faults")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
