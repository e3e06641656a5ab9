"""Several processes that do the work of one: torchrun starts them, and each is a rank.

All ranks run the same program. Work on the classifier is divided among them and what comes out is
exchanged before anything is decided, so that all of them decide alike and one report comes out. In one
process nothing is exchanged.

An exchange begins with two numbers of every rank: how much it sends, and how long its error is if it
has failed. So an error on one rank reaches the others wherever they are, and all of them raise it.
Ranks trust each other, as everywhere in `torch.distributed`: objects travel as pickles.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from nppr.errors import InputError, NpprError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


logger = logging.getLogger(__name__)

START_TIMEOUT = timedelta(minutes=5)
"""How long ranks wait for each other at the start."""

WORK_TIMEOUT = timedelta(days=7)
"""How long a rank waits for one that still works; one that has died is noticed at once."""

SHARED = "_raised_on_all_ranks"
"""Marks an error that every rank has."""

T = TypeVar("T")


class LostRank(KeyboardInterrupt):
    """Another rank has ended: the work stops as by Ctrl-C, and what is finished is kept."""


@dataclass(frozen=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0


@dataclass
class _State:
    """The group of processes this one belongs to; `own` if it was founded here."""

    world: World = field(default_factory=World)
    group: ProcessGroup | None = None
    own: bool = False


_state = _State()


def world() -> World:
    """Which of how many processes this is: the first of one, unless inside `ranks`."""
    return _state.world


@contextmanager
def ranks() -> Iterator[World]:
    """Join the other processes that torchrun has started, if it has.

    All must enter and leave together. Inside, `assess`, `learn` and `measure` divide their work.
    """
    joining = _state.group is None and int(os.environ.get("WORLD_SIZE", "1")) > 1
    joining = joining and torch.distributed.is_torchelastic_launched()
    if joining:
        _start()
    try:
        with together():
            yield world()
    finally:
        if joining:
            _stop()


@contextmanager
def together() -> Iterator[None]:
    """A block that all ranks enter and leave together; an error on one of them is raised on all.

    Where several fail, all raise the error of the lowest rank.
    """
    try:
        yield
    except Exception as error:
        if world().size > 1 and not getattr(error, SHARED, False):
            _exchange(_bytes(b""), error)
        raise
    if world().size > 1:
        _exchange(_bytes(b""))


def gathered(own: T) -> list[T]:
    """What every rank has, by rank."""
    if world().size == 1:
        return [own]
    return [pickle.loads(each.numpy().tobytes()) for each in _exchange(_bytes(pickle.dumps(own)))]


def first(work: Callable[[], T]) -> T:
    """What the work gives on rank 0, which alone does it, on all ranks."""
    with together():
        found = work() if world().is_first else None
        return gathered(found)[0]  # type: ignore[return-value]


def joined(pieces: Sequence[Tensor], device: torch.device) -> Tensor:
    """Rows of all ranks on `device`, by rank: those of this one are `pieces`, `(N_r, ...)` together.

    A rank may have none.
    """
    if world().size == 1:
        return torch.cat(list(pieces))
    shape = (tuple(pieces[0].shape[1:]), pieces[0].dtype) if pieces else None
    inner, dtype = next(each for each in gathered(shape) if each is not None)
    own = torch.cat(list(pieces)) if pieces else torch.empty(0, *inner, dtype=dtype, device=device)
    rows = _exchange(own if _over_devices(device) else own.cpu())
    return torch.cat(rows).to(device)


def share(costs: Sequence[int]) -> list[int]:
    """Which pieces of work this rank does: each goes to the rank that has least so far.

    >>> share([3, 1, 4])
    [0, 1, 2]
    """
    loads = [0] * world().size
    own: list[int] = []
    for number, cost in enumerate(costs):
        rank = loads.index(min(loads))
        loads[rank] += cost
        if rank == world().rank:
            own.append(number)
    return own


def span(pieces: int) -> range:
    """The neighbouring ones among equal pieces of work that this rank does.

    >>> span(3)
    range(0, 3)
    """
    rank, size = world().rank, world().size
    return range(pieces * rank // size, pieces * (rank + 1) // size)


def require_same(own: Mapping[str, Any]) -> None:
    """Raise `InputError` on all ranks where one of them has something else than the first."""
    everyone = gathered(_flat(own))
    for rank, other in enumerate(everyone):
        known = everyone[0]
        names = [name for name in {**known, **other} if known.get(name) != other.get(name)]
        if names:
            raise InputError(
                "`torchrun` must start ranks with the same command, data, model and versions, rank"
                f" {rank} has another {', '.join(names)} than rank 0. Give all machines the same"
                " files and the same installation."
            )


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """The leaves of a tree as text, by the names on the way to them."""
    leaves: dict[str, str] = {}
    for name, value in tree.items():
        path = f"{above} {name}".strip()
        leaves.update(_flat(value, path) if isinstance(value, Mapping) else {path: repr(value)})
    return leaves


def _start() -> None:
    try:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(_backend(), timeout=START_TIMEOUT)
            _state.own = True
        _state.group = torch.distributed.new_group(timeout=WORK_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NpprError(f"the processes that torchrun started did not connect: {reason}") from error
    _state.world = World(torch.distributed.get_rank(), torch.distributed.get_world_size())


def _stop() -> None:
    if _state.own:
        torch.distributed.destroy_process_group()
    _state.world, _state.group, _state.own = World(), None, False


def _backend() -> str | None:
    """PyTorch's own choice where every rank of a machine has an accelerator of its own, else gloo."""
    if not torch.accelerator.is_available():
        return "gloo"
    devices = torch.accelerator.device_count()
    # PyTorch 2.6 has only the name that later versions deprecate.
    name = (
        "set_device_index" if hasattr(torch.accelerator, "set_device_index") else "set_device_idx"
    )
    getattr(torch.accelerator, name)(int(os.environ.get("LOCAL_RANK", "0")) % devices)
    return None if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= devices else "gloo"


def _over_devices(device: torch.device) -> bool:
    """Whether tensors on a device can be exchanged as they are."""
    config = str(torch.distributed.get_backend_config(_state.group))
    return device.type == "cuda" and "nccl" in config


def _exchange(own: Tensor, error: Exception | None = None) -> list[Tensor]:
    """The rows of every rank, by rank; or all raise the error of the lowest rank that has one."""
    packed = b"" if error is None else _packed(error)
    headers = _all_gathered(torch.tensor([len(own), len(packed)]))
    failed = [int(header[1]) for header in headers]
    if not any(failed):
        return _padded(own, [int(header[0]) for header in headers])
    packages = _padded(_bytes(packed), failed)
    lowest = next(rank for rank, length in enumerate(failed) if length)
    if error is None or lowest != world().rank:
        error = _unpacked(packages[lowest].numpy().tobytes())
    setattr(error, SHARED, True)
    raise error


def _padded(own: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Tensors of different lengths, all made as long as the longest on their way."""
    longest = max(lengths)
    if not longest:
        return [own for _ in lengths]
    padded = own.new_zeros(longest, *own.shape[1:])
    padded[: len(own)] = own
    found = _all_gathered(padded)
    return [rows[:length] for rows, length in zip(found, lengths, strict=True)]


def _all_gathered(own: Tensor) -> list[Tensor]:
    found = [torch.empty_like(own) for _ in range(world().size)]
    try:
        torch.distributed.all_gather(found, own, group=_state.group)
    except RuntimeError as error:
        logger.warning("another rank has ended: %s", " ".join(str(error).split())[:200])
        raise LostRank("another rank has ended") from error
    return found


def _bytes(content: bytes) -> Tensor:
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _packed(error: Exception) -> bytes:
    """An error for the other ranks; where it cannot travel, its text does."""
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # a foreign error may fail in any way
        content = pickle.dumps(NpprError(f"{type(error).__name__}: {error}"))
    return content


def _unpacked(content: bytes) -> Exception:
    try:
        error = pickle.loads(content)
    except Exception as failure:
        return NpprError(f"another rank failed with an error that cannot be read here: {failure}")
    assert isinstance(error, Exception)
    return error
