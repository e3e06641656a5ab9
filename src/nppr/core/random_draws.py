"""Random numbers that depend on their purpose, not on how the work is divided.

The numbers of an input depend only on (seed, stream, dataset index, draw block), not on the batch
size, the micro-batch, the number of workers or the order of the work. Draws come in blocks of fixed
size, because a generator asked for fewer numbers need not return a prefix of a longer sequence.
Each type of device has its own generator, so draws may differ between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


DRAWS_PER_BLOCK = 16

_INDEX_BITS = 20
_BLOCK_BITS = 12
_INDEX_MASK = np.uint64((1 << _INDEX_BITS) - 1)


@dataclass(frozen=True)
class DrawBlock:
    """The random numbers of B inputs for one block of S draws.

    `indices` are the B dataset indices, `block` is the number of the draw block, and `size` is how
    many of its `capacity` draws are used. Every call for the same stream returns the same numbers.
    """

    seed: int
    split: str
    indices: tuple[int, ...]
    block: int
    size: int
    device: torch.device
    capacity: int = DRAWS_PER_BLOCK

    def normal(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal numbers, `(B, S, *shape)`."""
        return self._fill(stream, shape, normal=True)

    def uniform(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Return uniform numbers in [0, 1), `(B, S, *shape)`."""
        return self._fill(stream, shape, normal=False)

    def _fill(self, stream: str, shape: tuple[int, ...], *, normal: bool) -> Tensor:
        numbers = torch.empty(len(self.indices), self.capacity, *shape, device=self.device)
        seeds = derive_seeds(self.seed, f"{self.split}/{stream}", self.indices, self.block)
        generator = torch.Generator(self.device)
        for row, seed in zip(numbers.unbind(), seeds, strict=True):
            generator.manual_seed(seed)
            if normal:
                row.normal_(generator=generator)
            else:
                row.uniform_(generator=generator)
        return numbers[:, : self.size]


def derive_seeds(seed: int, stream: str, indices: Sequence[int], block: int) -> list[int]:
    """Return the 63-bit generator seeds of inputs for one draw block of a stream.

    PyTorch's CPU generator reads only the low 32 bits. These are a one-to-one function of the index
    and the block (below 2^20 inputs and 2^12 blocks), so no two blocks of a stream share numbers.
    """
    places = np.asarray(indices, dtype=np.uint64)
    high_block, low_block = divmod(block, 1 << _BLOCK_BITS)
    words = (places & _INDEX_MASK) << np.uint64(_BLOCK_BITS) | np.uint64(low_block)
    seeds = np.empty(len(places), dtype=np.uint64)
    for high_index in np.unique(places >> np.uint64(_INDEX_BITS)).tolist():
        base = _base(seed, stream, high_index, high_block)
        rows = places >> np.uint64(_INDEX_BITS) == high_index
        low = _scrambled(words[rows]) ^ np.uint64(base & 0xFFFFFFFF)
        seeds[rows] = np.uint64(base >> 33 << 32) | low
    return [int(value) for value in seeds]


def derive_seed(seed: int, stream: str, index: int, block: int) -> int:
    """Return the generator seed of one input; see `derive_seeds`."""
    return derive_seeds(seed, stream, [index], block)[0]


def _base(seed: int, stream: str, high_index: int, high_block: int) -> int:
    text = f"{seed}/{stream}/{high_index}/{high_block}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _scrambled(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute the 32-bit words: odd multiplications and xor-shifts are invertible."""
    for multiplier in (0x9E3779B1, 0x85EBCA77):
        words = words ^ words >> np.uint64(15)
        words = words * np.uint64(multiplier) & np.uint64(0xFFFFFFFF)
    return words ^ words >> np.uint64(16)
