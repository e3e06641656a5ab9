"""All figures of speed: `make bench`, or `python benchmarks/bench.py start-up ratios ...` for some.

ratios      fitting and measuring over bare loops, by rung; engines; the limit of matrix products
start-up    `nppr --help`, and the shortest assessment
estimates   announced times against times taken
growth      time and peak memory against inputs, draws, image size, classes, components
study       a study on two workers over one
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import growth
import speed_ratios
import time_estimates

NPPR = [sys.executable, "-m", "nppr"]
TURNS = 11
BAD_INPUT = 2
STUDY = """
name = "bench"
[[data]]
name = "digits"
spec = "digits"
inputs = 200
[[classifiers]]
name = "digits-cnn"
model = "digits-cnn"
[fit]
calls = 30720
[measure]
draws = 64
[[grids]]
fit_radii = ["0.1", "0.15", "0.2", "0.25"]
dependencies = ["joint"]
sources = ["uniform", "pgd"]
[[tables]]
name = "main"
title = "NPPR."
rows = ["radius"]
columns = [{ header = "NPPR", value = "value", where = { source = "nppr" } }]
"""


def seconds(command: Sequence[str], folder: Path) -> float:
    """Wall time of a command, with one thread; a mistake that it reports is no failure."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode not in (0, BAD_INPUT):
        raise RuntimeError(done.stderr)
    return time.perf_counter() - start


def time_start_up() -> None:
    """Print how long the command line takes to do nearly nothing."""
    short = ["assess", "--inputs", "10", "--draws", "2", "--sources", "uniform", "--overwrite"]
    with tempfile.TemporaryDirectory() as name:
        for title, command in (
            ("nppr --help", ["--help"]),
            ("an error in an option", ["assess", "--norm", "l3"]),
            ("10 inputs x 2 draws of digits", [*short, "--no-page", "--out", "run"]),
            ("the same with its page", [*short, "--out", "run"]),
        ):
            found = [seconds([*NPPR, *command], Path(name)) for _ in range(TURNS)]
            print(f"  {title:34s} {statistics.median(found):6.2f} s")


def time_study() -> None:
    """Print the time of a study on two workers over that on one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench.toml").write_text(STUDY, encoding="utf-8")
        found = {}
        for workers in (1, 2):
            own = ["--workers", str(workers), "--out", f"out-{workers}", "--cache", f"at-{workers}"]
            found[workers] = seconds([*NPPR, "study", "bench.toml", *own], folder)
    print(f"  one worker {found[1]:.1f} s, two {found[2]:.1f} s: ratio {found[2] / found[1]:.3f}")


SECTIONS: dict[str, Callable[[], None]] = {
    "ratios": speed_ratios.main,
    "start-up": time_start_up,
    "estimates": time_estimates.main,
    "growth": growth.main,
    "study": time_study,
}


def main(chosen: Sequence[str]) -> None:
    """Print the sections asked for, or all."""
    for name in chosen or SECTIONS:
        print(f"\n{name}", flush=True)
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
