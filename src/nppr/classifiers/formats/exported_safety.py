"""A harmless copy of a `.pt2` file.

PyTorch's reader unpickles parts of the archive, resolves the names of operators by walking the
attributes of the `torch` module, evaluates sizes as expressions, imports the types of tree specs, and
pastes names and guards into source text that it runs: a crafted file could run anything. So the file
is read once, every part is checked against what `torch.export.save` writes for a plain network, the
parts that a network does not need are emptied, and only the copy made of the rest is handed to PyTorch.
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

__all__ = ["harmless_copy"]

WORD = re.compile(r"[A-Za-z0-9_.+/-]*")
"""All that a name in a program may be made of: nothing that could end it in a source text."""

DUNDER = re.compile(r"__[A-Za-z]\w*__")
OPERATOR = re.compile(r"torch\.ops\.aten\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")
ARITHMETIC = re.compile(
    r"_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|torch\.sym_(int|float|max|min|not|sum)|math\.(ceil|floor|trunc|sqrt)"
)
TEXT_OPTIONS = ("approximate", "equation", "indexing", "mode", "padding", "rounding_mode")
"""Arguments of operators that are words; any other text could be the name of a file."""

SIZE = re.compile(
    r"(?:[A-Z][A-Za-z]*|[a-z]{1,4}\d+|positive|integer|nonnegative|True|[\d\s+\-/(),=])*"
)
QUOTED_SYMBOL = re.compile(r"'([a-z]{1,4}\d+)'")
LONGEST_SIZE = 300

TREE_TYPES = (None, "builtins.tuple", "builtins.list", "builtins.dict")
EMPTIED: dict[str, Any] = {"metadata": {}, "guards_code": [], "treespec_namedtuple_fields": {}}
MEMBERS = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version"
    r"|\.storage_alignment|data/(weights|constants)/\w+\.json|models/model\.json"
    r"|data/sample_inputs/model\.pt|data/weights/weight_\d+|data/constants/tensor_\d+"
)


def harmless_copy(path: Path) -> io.BytesIO:
    """The archive as PyTorch may read it, or `ClassifierError` where it holds anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
            if len(members) != len(archive.infolist()):
                raise _refused(path, "a member stands twice in it")
            return _rewritten(members, path)
    except ClassifierError:
        raise
    except Exception as error:  # damaged archives fail in any way
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read: {reason}"
        ) from error


def _rewritten(members: dict[str, bytes], path: Path) -> io.BytesIO:
    roots = {name.split("/", 1)[0] for name in members}
    if len(roots) != 1:
        raise _refused(path, "it holds more than one folder")
    pickled = {"data/sample_inputs/model.pt"}
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w") as archive:
        for name, content in members.items():
            inner = name.split("/", 1)[-1]
            if not MEMBERS.fullmatch(inner):
                raise _refused(path, f"it holds {inner[:80]!r}")
            if inner == "models/model.json":
                content = _checked_program(content, path)
            elif inner.endswith(".json"):
                pickled |= _pickled_payloads(content, inner, path)
            archive.writestr(f"model/{inner}", content)
        for name, content in members.items():
            if name.split("/", 1)[-1] in pickled:
                _check_pickle(content, name, path)
    copy.seek(0)
    return copy


def _pickled_payloads(content: bytes, config_name: str, path: Path) -> set[str]:
    """Payloads that PyTorch will unpickle, by the names under which it looks for them."""
    folder = config_name.rsplit("/", 1)[0]
    pickled = set()
    for payload in json.loads(content)["config"].values():
        name = f"{folder}/{payload['path_name']}"
        if not MEMBERS.fullmatch(name):
            raise _refused(path, f"it needs {name[:80]!r}")
        if payload["use_pickle"]:
            pickled.add(name)
    return pickled


def _check_pickle(content: bytes, name: str, path: Path) -> None:
    """What the strict reader accepts is harmless to the lax one too."""
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # damaged or crafted pickles fail in any way
        raise _refused(path, f"{name!r} is not a plain tensor") from error


def _checked_program(content: bytes, path: Path) -> bytes:
    program = _emptied(json.loads(content))
    for key, text in _texts(program):
        if key == "target":
            harmless = _is_operator(text)
        elif key == "expr_str":
            harmless = _is_size(text)
        elif key in ("in_spec", "out_spec"):
            harmless = _is_tree(json.loads(text))
        else:
            harmless = bool(WORD.fullmatch(text)) and not DUNDER.search(text)
        if not harmless:
            raise _refused(path, f"its {key!r} is {text[:80]!r}")
    return json.dumps(program).encode()


def _emptied(tree: Any) -> Any:
    """The tree without the parts that a network does not need."""
    if isinstance(tree, dict):
        return {name: EMPTIED.get(name, _emptied(value)) for name, value in tree.items()}
    return [_emptied(value) for value in tree] if isinstance(tree, list) else tree


def _texts(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts in a tree of JSON, names of entries too, with the key they stand under."""
    if isinstance(tree, str):
        yield key, tree
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield "key", name
            yield from _texts(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value, key)


def _is_operator(text: str) -> bool:
    """An operator of tensors that takes no text but a known option, or plain arithmetic."""
    if ARITHMETIC.fullmatch(text):
        return True
    names = OPERATOR.fullmatch(text)
    if names is None or "__" in text:
        return False
    found = getattr(getattr(torch.ops.aten, names[1], None), names[2], None)
    if not isinstance(found, torch._ops.OpOverload):
        return False
    arguments = found._schema.arguments
    return all("str" not in str(a.type) or a.name in TEXT_OPTIONS for a in arguments)


def _is_size(text: str) -> bool:
    return len(text) <= LONGEST_SIZE and bool(SIZE.fullmatch(QUOTED_SYMBOL.sub(r"\1", text)))


def _is_tree(tree: Any) -> bool:
    """Whether a tree spec is made of tuples, lists and dictionaries with plain keys."""
    if isinstance(tree, list):
        return all(_is_tree(part) for part in tree)
    if not isinstance(tree, dict):
        return isinstance(tree, int)
    plain = tree.get("type") in TREE_TYPES and set(tree) <= {"type", "context", "children_spec"}
    words = json.loads(tree["context"]) if isinstance(tree.get("context"), str) else []
    keys = [word for word in words or [] if not (isinstance(word, str) and WORD.fullmatch(word))]
    return plain and not keys and _is_tree(tree.get("children_spec", []))


def _refused(path: Path, why: str) -> ClassifierError:
    return ClassifierError(
        f"`model` file {str(path)!r} is refused, reading it could run code: {why}."
        " Export the network again with torch.export.save."
    )
