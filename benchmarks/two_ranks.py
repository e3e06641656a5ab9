"""Two ranks against one process with one thread: the ratio of wall times, and how counts differ.

    python benchmarks/two_ranks.py assess --model resnet20 --weights W --data D --batch-size 32

What follows is an `nppr assess` command without --out. With a --batch-size both runs take the same
micro-batches; without one it is timed. Imports, data and checks are not divided: give it some
minutes of work.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ALONE = [sys.executable, "-m", "nppr"]
TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TWO += ["-m", "nppr"]


def seconds(command: Sequence[str], out: Path) -> float:
    """Wall time of a command that writes a run folder."""
    start = time.perf_counter()
    subprocess.run(
        [*command, "--quiet", "--no-page", "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def correct_draws(folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Draws of every source and input, and how many are classified correctly."""
    with (folder / "per_input.csv").open(encoding="utf-8", newline="") as file:
        return {
            (line["source"], line["index"]): (int(line["draws"]), int(line["correct"]))
            for line in csv.DictReader(file)
        }


def main(arguments: Sequence[str]) -> None:
    """Run both and print what they took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = seconds([*ALONE, *arguments], folder / "one")
        two = seconds([*TWO, *arguments], folder / "two")
        alone, divided = correct_draws(folder / "one"), correct_draws(folder / "two")
    draws = sum(draws for draws, _ in alone.values())
    differing = sum(abs(correct - divided[at][1]) for at, (_, correct) in alone.items())
    print(f"one process {one:.1f} s, two ranks {two:.1f} s: ratio {two / one:.3f}")
    print(f"counts of correct draws differ by {differing:,} in {draws:,} draws")


if __name__ == "__main__":
    main(sys.argv[1:])
