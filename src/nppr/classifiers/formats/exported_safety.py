"""Is a `.pt2` file harmless to read?

PyTorch's reader unpickles parts of the archive, resolves the names of operators by walking the
attributes of the `torch` module, and evaluates symbolic sizes as expressions: a crafted file could
run anything. So before it is read, every part is checked against what `torch.export.save` writes for a
plain network, and the rest is refused.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nppr.errors import ClassifierError

__all__ = ["require_harmless"]

OPERATOR = re.compile(
    r"torch\.ops\.(aten|prim|prims|higher_order|quantized_decomposed)(\.\w+)+"
    r"|torch\.sym_\w+|_operator\.(?!attrgetter|itemgetter|methodcaller|call)\w+|math\.\w+"
)
SYMBOL = re.compile(r"[a-z]{1,4}\d+|[A-Z]\w*|positive|nonnegative|integer|real|zero|nonzero")
QUOTED_SYMBOL = re.compile(r"'[a-z]{1,4}\d+'")
WORD = re.compile(r"[A-Za-z_]\w*")
PLAIN = re.compile(r"[\w\s+\-*/(),.<>=&|~!%]*")
DOT = re.compile(r"\.\s*[A-Za-z_]")
EXPRESSIONS = ("expr_str",)
PLAIN_FILES = re.compile(
    r"(archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version"
    r"|\.storage_alignment|data/(weights|constants)/\w+\.json|models/\w+\.json)"
)
PICKLED_FILES = re.compile(r"data/sample_inputs/\w+\.pt")
PAYLOAD_FILES = re.compile(r"data/(weights/weight_\d+|constants/tensor_\d+)")


def require_harmless(path: Path) -> None:
    """Raise `ClassifierError` unless the archive holds only what a plain network needs."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive, path)
    except ClassifierError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, NotImplementedError) as error:
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read: {error}"
        ) from error


def _check(archive: zipfile.ZipFile, path: Path) -> None:
    pickled = set()
    for name in archive.namelist():
        inner = name.split("/", 1)[-1]
        if inner.startswith("models/") and inner.endswith(".json"):
            _check_program(json.loads(archive.read(name)), path)
        elif re.fullmatch(r"data/(weights|constants)/\w+\.json", inner):
            pickled |= _pickled_payloads(json.loads(archive.read(name)), inner)
    for name in archive.namelist():
        inner = name.split("/", 1)[-1]
        if inner in pickled or PICKLED_FILES.fullmatch(inner):
            _check_pickle(archive.read(name), inner, path)
        elif not (PLAIN_FILES.fullmatch(inner) or PAYLOAD_FILES.fullmatch(inner)):
            raise _refused(path, f"it holds {inner!r}")


def _pickled_payloads(config: Any, config_name: str) -> set[str]:
    folder = config_name.rsplit("/", 1)[0]
    return {
        f"{folder}/{payload['path_name']}"
        for payload in config["config"].values()
        if payload["use_pickle"]
    }


def _check_pickle(content: bytes, name: str, path: Path) -> None:
    """What the strict reader accepts is harmless to the lax one too."""
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # damaged or crafted pickles fail in any way
        raise _refused(path, f"{name!r} is not a plain tensor") from error


def _check_program(program: Any, path: Path) -> None:
    for key, value in _strings(program):
        if key == "target" and not OPERATOR.fullmatch(value):
            raise _refused(path, f"it calls {value[:80]!r}")
        if key in EXPRESSIONS and not _is_plain_expression(value):
            raise _refused(path, f"a size is {value[:80]!r}")


def _is_plain_expression(text: str) -> bool:
    text = QUOTED_SYMBOL.sub("s0", text)
    plain = PLAIN.fullmatch(text) and not DOT.search(text) and "__" not in text
    return bool(plain) and all(SYMBOL.fullmatch(word) for word in WORD.findall(text))


def _strings(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts in a tree of JSON with the key they stand under."""
    if isinstance(tree, str):
        yield key, tree
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from _strings(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from _strings(value, key)


def _refused(path: Path, why: str) -> ClassifierError:
    return ClassifierError(
        f"`model` file {str(path)!r} is refused, reading it could run code: {why}."
        " Export the network again with torch.export.save."
    )
