"""Peak memory of `measure` at ten times the draws over peak memory, each in its own process."""

from __future__ import annotations

import resource
import subprocess
import sys

from networks import CASES, case
from nppr.budget import Budget
from nppr.classifiers import prepare
from nppr.measurement import measure, probe
from nppr.sources import Uniform

TARGET = 1.05


def peak(name: str, draws: int) -> int:
    """Peak memory in kilobytes of a process that measures this many draws."""
    done = subprocess.run(
        [sys.executable, __file__, name, str(draws)], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def measure_once(name: str, draws: int) -> None:
    """Measure, then print this process's peak memory."""
    classifier, data = case(name)
    ready = prepare(classifier, probe(data.evaluate), classes=data.classes, micro_batch=64)
    measure(Uniform(Budget.linf("8/255")), ready, data.evaluate, draws=draws)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    """Print a ratio for each network."""
    print(f"peak memory at 10x the draws / peak memory (target <= {TARGET:.2f})")
    for name in CASES:
        few, many = peak(name, 32), peak(name, 320)
        print(f"  {name:13s} {many / few:.3f}   ({few / 1024:.0f} MB at 32 draws)")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure_once(sys.argv[1], int(sys.argv[2]))
    else:
        main()
