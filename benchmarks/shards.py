"""How much faster two workers measure than one, with one thread each.

    python benchmarks/shards.py --model resnet20 --weights w.safetensors --data cifar.parquet

Three times are compared: measuring (noise and an attack), the rung per-input, and the whole run with
its fit and the start of the processes. Other work on the machine spoils the ratio, so its load is
printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nppr.report import read_run

MEASURED = "uniform,gaussian,pgd"


def run(words: list[str], out: Path) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "nppr", *words, "--out", str(out), "--no-page", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def seconds_of(out: Path) -> tuple[float, float]:
    """Seconds of measuring fixed sources, and of the rung per-input."""
    seconds = read_run(out).report.timing.seconds
    own = sum(value for name, value in seconds.items() if "per-input" in name or name == "ladder")
    fixed = sum(value for name, value in seconds.items() if name in MEASURED.split(","))
    return fixed, own


def main() -> None:
    """Run the command with one worker and with two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="digits-cnn")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--eps", default="8/255")
    parser.add_argument("--weights")
    parser.add_argument("--mean")
    parser.add_argument("--std")
    parser.add_argument("--inputs", default="500")
    parser.add_argument("--draws", default="50")
    parser.add_argument("--fit-calls", default="2048")
    parser.add_argument("--batch-size", default="64")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    given = [f"--{name.replace('_', '-')}={value}" for name, value in vars(args).items() if value]
    words = ["assess", *given, "--floor=0", f"--sources=nppr,{MEASURED}"]
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, 2):
            out = Path(folder) / str(workers)
            whole = run([*words, f"--workers={workers}"], out)
            times[workers] = (*seconds_of(out), whole)
    load = os.getloadavg()[0]
    print(f"{args.model}, {args.inputs} inputs, {args.draws} draws; load {load:.1f}")
    for number, name in enumerate(("measuring", "per-input", "whole run")):
        one, two = times[1][number], times[2][number]
        print(f"{name:10} {one:7.1f} s -> {two:7.1f} s  ratio {two / one:.2f}")


if __name__ == "__main__":
    main()
