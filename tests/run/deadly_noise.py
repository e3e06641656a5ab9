"""Noise in which a process dies, in a module that other processes can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import Tensor


def deadly(x: Tensor, _: Tensor, draws: int) -> Tensor:
    """The first or every call kills a process, as a file says; never the process of the tests."""
    path = Path(os.environ["NPPR_TEST_DEADLY"])
    if path.exists() and os.getpid() != int(os.environ["NPPR_TEST_OWNER"]):
        if path.read_text() == "once":
            path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.05 * torch.ones_like(x)[:, None].repeat(1, draws, 1, 1, 1)
