from __future__ import annotations

import subprocess
import sys

import pytest

from nppr.allocator import keep_freed_memory

CHURN = """
import resource, sys
import torch
from nppr.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)
for _ in range(5):
    torch.ones(2**24)  # 64 MB: above any threshold the C library finds by itself
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CHURN, how], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_not_fetched_page_by_page_again() -> None:
    assert faults("keep") * 10 < faults("leave")


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
