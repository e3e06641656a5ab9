"""Every number of two dozen small commands, recorded before a change and checked after it.

    python benchmarks/safety_net.py record net.json
    python benchmarks/safety_net.py check net.json      # prints every difference, exit code 1 if any
    python benchmarks/safety_net.py check net.json --only l2,compare

A change of the program's structure must leave all of them as they are. What is kept is a flat table
of names and numbers for each command, not the command's files: where their layout changes, only the
readers in safety_net_readers.py have to follow. Times, versions, the machine and wording are left out.
Numbers depend on the version of PyTorch and on the processor: record and check on the same machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from safety_net_readers import (
    Reader,
    Value,
    Values,
    read_certificate,
    read_comparison,
    read_doctor,
    read_extras,
    read_learned,
    read_per_input,
    read_printed,
    read_results,
    read_study,
    read_training,
)

SOURCE = Path(__file__).resolve().parents[1] / "src"
STUDY = """
name = "net"
data = [{ name = "digits", spec = "digits", inputs = 80, fit_inputs = 300, select_inputs = 120 }]
classifiers = [{ name = "digits-cnn", model = "digits-cnn" }]
fit = { calls = 8192 }
measure = { draws = 16 }
[[grids]]
fit_radii = ["0.2"]
dependencies = ["independent", "input", "joint"]
components = [3, 7]
sources = ["uniform", "pgd-3"]
seeds = [0, 1]
[[tables]]
name = "ablation"
rows = ["source", "components"]
columns = [
    { by = ["dependency"] },
    { value = "robustness", by = ["dependency"] },
    { value = "entropy_ratio", by = ["dependency"], where = { source = "nppr" } },
]
"""
# The form of a classifier is chosen by the clock, and attacks, stress and splitting round with it. To
# a clock by which everything takes equally long no form is faster: the classifier stays as given.
CLOCK = "import itertools, time\ntime.perf_counter = itertools.count(0.0, 0.1).__next__\n"

RUN = (read_results, read_per_input, read_learned, read_extras)
FIT = "--fit-inputs 300 --select-inputs 120 --fit-calls 8192 --batch-size 256 --quiet --out {}"
MEASURE = "--inputs 80 --draws 16 --batch-size 256 --no-page --quiet --out {}"
PAIRED = "--sources nppr,uniform,laplace,pgd --dependency input --floor 0,0.5 --eps 0.15"

KINDS: dict[str, tuple[str, Sequence[Reader]]] = {
    "train": ("digits-cnn --quiet --out {}/weights.safetensors", (read_training,)),
    "assess": (f"{MEASURE} {FIT}", RUN),
    "fit": (FIT, (read_learned,)),
    "evaluate": (MEASURE, RUN),
    "spectrum": (f"{MEASURE} {FIT} --json", (*RUN, read_printed)),
    "bound": (f"{MEASURE} --json", (*RUN, read_printed)),
    "certify": ("--batch-size 256 --json", (read_certificate,)),
    "compare": ("--format json --quiet --out {}", (read_comparison,)),
    "study": ("--cache cache --quiet --out {}", (read_study,)),
    "doctor": ("--batch-size 256 --json", (read_doctor,)),
}
"""The options that all commands of a kind share, and what reads their files."""

CASES = {
    "train": "train --epochs 2",
    "train-pgd": "train --method pgd --eps 0.1 --attack-steps 3 --epochs 1",
    "all": "assess --sources all --eps 0.12",
    "l2": "assess --sources nppr,gaussian,uniform,pgd --norm l2 --eps 1.2 --upsampler multiscale"
    " --covariance lowrank:2",
    "floors": f"assess {PAIRED}",
    "trained": f"assess {PAIRED} --weights @train/weights.safetensors",
    "compare": "compare @floors @trained",
    "radii": "assess --sources nppr,uniform,pgd --dependency label --eps 0.2 --radii 0.05,0.15",
    "precision": "assess --sources nppr,uniform --dependency independent --floor 0.5 --eps 0.2"
    " --precision 0.014 --inputs 597",
    "precision-draws": "assess --sources uniform --eps 0.25 --precision 0.02 --inputs 180",
    "rare": "assess --sources uniform,nppr --eps 0.2 --rare --rare-calls 33000",
    "quantise": "assess --sources nppr,gaussian,cw,stress --dependency independent --floor 0"
    " --fit-seeds 2 --eps 0.15 --quantise",
    "only-merged": "assess --sources pgd,cw,universal --eps 0.12 --only-merged",
    "paper": "assess --sources nppr --preset paper --upsampler trainable --eps 0.2",
    "fit": "fit --dependency label --components 3 --eps 0.2",
    "evaluate": "evaluate --distribution @fit --sources uniform --eps 0.15",
    "spectrum": "spectrum --dependency independent --floor 0,0.5,1 --eps 0.2",
    "bound": "bound --density-ratio 1,2,5 --eps 0.2",
    "holds": "certify --eps 0.25 --at-least 0.8",
    "violated": "certify --eps 0.25 --at-least 0.99 --per-class",
    "learned": "certify --source nppr --distribution @fit --at-least 0.9 --about test-set"
    " --calls 8192",
    "study": "study study.toml",
    "doctor": "doctor",
    "doctor-untrained": "doctor --weights random",
}
"""The commands; @NAME is the folder of another one, which runs first."""


def run(name: str, root: Path) -> Values:
    """Everything that comes out of a command, or why it could not be read."""
    command, *own = CASES[name].replace("@", "").split()
    shared, readers = KINDS[command]
    folder = root / name
    folder.mkdir()
    paths = os.pathsep.join([str(root / "clock"), str(SOURCE)])
    ended = subprocess.run(
        [sys.executable, "-m", "nppr", command, *shared.replace("{}", name).split(), *own],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "printed").write_text(ended.stdout, encoding="utf-8")
    found: Values = {"exit code": ended.returncode}
    try:
        for reader in readers:
            found |= reader(folder)
    except (LookupError, OSError, TypeError, ValueError) as error:
        last = ended.stderr.strip().splitlines()[-1:]
        found["failure"] = " ".join([f"{type(error).__name__} {error}", *last])
    return found


def run_all(names: Iterable[str]) -> dict[str, Values]:
    """The numbers of these commands, in a folder of their own."""
    found: dict[str, Values] = {}
    with tempfile.TemporaryDirectory() as path:
        root = Path(path)
        (root / "clock").mkdir()
        (root / "clock" / "sitecustomize.py").write_text(CLOCK, encoding="utf-8")
        (root / "study.toml").write_text(STUDY, encoding="utf-8")
        for name in names:
            start = time.perf_counter()
            found[name] = run(name, root)
            seconds, failure = time.perf_counter() - start, found[name].get("failure", "")
            print(f"{name}: {len(found[name])} values, {seconds:.1f} s {failure}", flush=True)
    print(f"{sum(map(len, found.values())):,} values of {len(found)} commands")
    return found


def chosen(only: str | None) -> list[str]:
    """All commands, or those asked for and what they need, in the order of the table."""
    wanted = list(CASES) if only is None else only.split(",")
    for name in wanted:  # grows under way
        if name not in CASES:
            raise SystemExit(f"--only must name some of {', '.join(CASES)}, got {name!r}.")
        words = CASES[name].split()
        needs = [word[1:].split("/")[0] for word in words if word.startswith("@")]
        wanted += [need for need in needs if need not in wanted]
    return [name for name in CASES if name in wanted]


def differences(recorded: Values, now: Values) -> list[str]:
    """One line for every number that has changed, is gone or is new, or the failure in their place."""
    if "failure" in now:
        return [f"exit code {now['exit code']}, could not be read: {now['failure']}"]
    return [
        f"{name}: {recorded.get(name, 'not recorded')} -> {now.get(name, 'gone')}"
        for name in {**recorded, **now}
        if name not in recorded or name not in now or not _same(recorded[name], now[name])
    ]


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        # Where the true value is 0, a difference of two means is nothing but rounding.
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-15)
    return one == other


def main() -> int:
    """Record or check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", help="names of commands, separated by commas")
    given = parser.parse_args()
    recorded = json.loads(given.file.read_text(encoding="utf-8")) if given.task == "check" else {}
    found = run_all(chosen(given.only))
    if given.task == "record":
        failed = [name for name, values in found.items() if "failure" in values]
        if failed:
            raise SystemExit(f"nothing is recorded: {', '.join(failed)} could not be read.")
        given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    lines = [
        f"{name}: {line}"
        for name, values in found.items()
        for line in differences(recorded.get(name, {}), values)
    ]
    print("\n".join([*lines, f"{len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
