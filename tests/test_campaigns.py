"""The campaigns of `benchmarks/` in small: kills, mutations and crafted files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and limits memory")
@pytest.mark.parametrize(
    "arguments",
    [
        "kill_campaign.py --kills 6 --faults 5 --seed 2",
        "mutation_campaign.py --mutations 100 --seed 2",
        "crafted_files.py",
    ],
    ids=["kills", "mutations", "crafted files"],
)
def test_nothing_goes_wrong(arguments: str) -> None:
    name, *options = arguments.split()
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), *options],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "FAULT" not in done.stdout
