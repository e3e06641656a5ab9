"""Programs of `torch.export`: `model.pt2`. They keep gradients in the input.

PyTorch's reader unpickles members of the archive, resolves the names of operators by walking the
attributes of the `torch` module, evaluates sizes as expressions, imports the types of tree specs,
and pastes names and guards into source text that it runs: a crafted file could run anything. So the
file is read once, every member is checked against the output of `torch.export.save` for a plain
network, parts that a network does not need are emptied, and only a copy of the rest is given to
PyTorch.

PyTorch stores everything without compression. A compressed archive could unpack to any size, and a
tensor's description can announce any shape, so both are limited by the size of the file.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from nppr.errors import ClassifierError, reason_of
from nppr.models.classifier import find_logits
from nppr.models.formats.array_models import FixedInputModel
from nppr.models.model_formats import LoadedModel, ModelFormat
from nppr.models.weight_files import ZIP_MAGIC
from nppr.system.bounded import (
    PROGRAM_JSON_LIMIT,
    Limit,
    OversizeError,
    program_limit,
    read_member,
    read_unpacked_size,
)

OLDEST = (2, 9)
"""The first PyTorch version that writes the archive format checked here."""

MOST_LIMITED = 2**20
"""A larger batch limit counts as none."""

WORD = re.compile(r"[A-Za-z0-9_.+/-]*")
"""Characters allowed in names of a program: none could end the name in a source text."""

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
ANNOUNCED = "what its tensors announce"
EXPORT = "Export the network again with torch.export.save, which does not compress."


class _UnsafeError(Exception):
    """The content of a file could run code."""


def load_pt2(path: Path) -> FixedInputModel:
    """Read a `.pt2` file; a crafted one is refused before PyTorch sees it."""
    known = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if known < OLDEST:
        raise ClassifierError(
            f"`model` in a .pt2 file needs PyTorch 2.9 or later, which stores each tensor apart, got"
            f" {torch.__version__}. Export it as .onnx, or give Python code that makes the model."
        )
    refused = f"`model` file {str(path)!r} is refused"
    # A damaged file may make the reader fail in any way, and log a trace.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.load(_harmless_copy(path))
            program = exported.module()
    except _UnsafeError as error:
        raise ClassifierError(
            f"{refused}, reading it could run code: {error}."
            " Export the network again with torch.export.save."
        ) from error
    except OversizeError as error:
        raise ClassifierError(f"{refused}: {error}") from error
    except Exception as error:
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read:"
            f" {reason_of(error)}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    (fewest, most), shape = _input_shape(exported, path)
    tensors = [*exported.state_dict.values(), *exported.tensor_constants.values()]
    device = next((tensor.device for tensor in tensors), None)
    return FixedInputModel(lambda x: find_logits(program(x)), shape, most, device, fewest)


def _input_shape(
    exported: Any, path: Path
) -> tuple[tuple[int, int | None], tuple[int | None, ...]]:
    """Return the smallest and largest batch, and the shape of images; None means no limit."""
    names = list(exported.graph_signature.user_inputs)
    if len(names) != 1:
        raise ClassifierError(
            f"`model` must take one input, {str(path)!r} takes {len(names)}: {names}."
        )
    node = next(node for node in exported.graph.nodes if node.name == names[0])
    batch, *shape = node.meta["val"].shape
    known = tuple(size if isinstance(size, int) else None for size in shape)
    if isinstance(batch, int):
        return (batch, batch), known
    limits = exported.range_constraints.get(batch.node.expr)
    if limits is None:
        return (1, None), known
    most = None if limits.upper > MOST_LIMITED else int(limits.upper)
    return (max(1, int(limits.lower)), most), known


def _harmless_copy(path: Path) -> io.BytesIO:
    """Copy the members that PyTorch may read; refuse an archive with any other member."""
    limit = program_limit(path.stat().st_size, EXPORT)
    limit.require(read_unpacked_size(path))
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) != len(names):
            raise _UnsafeError("a member occurs twice in it")
        if len({name.split("/", 1)[0] for name in names}) != 1:
            raise _UnsafeError("it holds more than one folder")
        members = {
            name.split("/", 1)[-1]: read_member(
                archive, name, PROGRAM_JSON_LIMIT if name.endswith(".json") else limit
            )
            for name in names
        }
    pickled = ["data/sample_inputs/model.pt"]
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w") as archive:
        for name, content in members.items():
            if not MEMBERS.fullmatch(name):
                raise _UnsafeError(f"it holds {name[:80]!r}")
            if name == "models/model.json":
                content = json.dumps(_harmless_tree(json.loads(content))).encode()
            elif name.endswith(".json"):
                pickled += _pickled_payloads(content, name, limit)
            archive.writestr(f"model/{name}", content)
    _check_pickles(members, pickled, limit)
    copy.seek(0)
    return copy


def _pickled_payloads(content: bytes, config_name: str, limit: Limit) -> list[str]:
    """Return the names of payloads that PyTorch will unpickle, with repetitions."""
    folder = config_name.rsplit("/", 1)[0]
    pickled = []
    payloads = json.loads(content)["config"].values()
    limit.require(sum(_elements(payload["tensor_meta"]) for payload in payloads), ANNOUNCED)
    for payload in payloads:
        name = f"{folder}/{payload['path_name']}"
        if not MEMBERS.fullmatch(name):
            raise _UnsafeError(f"it needs {name[:80]!r}")
        if payload["use_pickle"]:
            pickled.append(name)
    return pickled


def _elements(meta: Any) -> int:
    """Count the numbers that a tensor announces; PyTorch invents them if the file has none."""
    return 0 if meta is None else math.prod(abs(int(size["as_int"])) for size in meta["sizes"])


def _check_pickles(members: dict[str, bytes], pickled: list[str], limit: Limit) -> None:
    """Check the pickles, which are archives themselves; a repeated one is unpacked as often."""
    held = {name: members[name] for name in {*pickled} & {*members}}
    sizes = {
        name: read_unpacked_size(io.BytesIO(content))
        for name, content in held.items()
        if content.startswith(ZIP_MAGIC)
    }
    limit.require(sum(sizes.get(name, 0) for name in pickled), ANNOUNCED)
    for name, content in held.items():
        try:
            # If the strict reader accepts it, it is harmless to the lax reader too.
            torch.load(io.BytesIO(content), weights_only=True)
        except Exception as error:  # damaged or crafted pickles fail in any way
            raise _UnsafeError(f"{name!r} is not a plain tensor") from error


def _harmless_tree(tree: Any, key: str = "") -> Any:
    """Return a JSON tree without the parts that a network does not need; raise if it is unsafe."""
    if isinstance(tree, dict):
        return {
            _harmless_tree(name, "key"): EMPTIED[name]
            if name in EMPTIED
            else _harmless_tree(value, name)
            for name, value in tree.items()
        }
    if isinstance(tree, list):
        return [_harmless_tree(value, key) for value in tree]
    if isinstance(tree, str) and not _is_harmless(key, tree):
        raise _UnsafeError(f"its {key!r} is {tree[:80]!r}")
    return tree


def _is_harmless(key: str, text: str) -> bool:
    if key == "target":
        return _is_operator(text)
    if key == "expr_str":
        symbols = QUOTED_SYMBOL.sub(r"\1", text)
        return len(text) <= LONGEST_SIZE and bool(SIZE.fullmatch(symbols))
    if key in ("in_spec", "out_spec"):
        return _is_tree(json.loads(text))
    return bool(WORD.fullmatch(text)) and not DUNDER.search(text)


def _is_operator(text: str) -> bool:
    """Whether a name is plain arithmetic, or an operator whose only texts are known options."""
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


def _is_tree(tree: Any) -> bool:
    """Whether a tree spec is made of tuples, lists and dictionaries with plain keys."""
    if isinstance(tree, list):
        return all(_is_tree(child) for child in tree)
    if not isinstance(tree, dict):
        return isinstance(tree, int)
    plain = tree.get("type") in TREE_TYPES and set(tree) <= {"type", "context", "children_spec"}
    words = json.loads(tree["context"]) if isinstance(tree.get("context"), str) else []
    keys = [word for word in words or [] if not (isinstance(word, str) and WORD.fullmatch(word))]
    return plain and not keys and _is_tree(tree.get("children_spec", []))


_LOADING = (
    "Write Python code that makes the model and loads the file, and name it:"
    " --model my_model.py:make"
)
PT2_FILE = ModelFormat(
    lambda wanted: LoadedModel(load_pt2(Path(wanted.name))),
    has_weights=True,
    other_files={
        **dict.fromkeys(
            (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".tar", ".joblib"),
            "a pickle, which does not say what network it belongs to. If it holds a state dict, it is"
            " weights: --model NAME or my_model.py:make, with --weights {0!r}. If it holds a whole"
            f" model, loading it would run code that it contains. {_LOADING}",
        ),
        **dict.fromkeys(
            (".ts", ".jit", ".torchscript"),
            "TorchScript, whose code runs as it is loaded. Export the model again with"
            f" torch.export.save(..., 'model.pt2'), or: {_LOADING[0].lower()}{_LOADING[1:]}",
        ),
    },
)
