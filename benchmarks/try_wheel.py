"""Build the wheel and the source archive, check their metadata, and use the wheel as others would.

    python benchmarks/try_wheel.py

The wheel is installed with its dependencies alone, as constraints.txt pins them, into an environment of
its own; a small assessment there must write a page. Half a minute, nearly all of it the installation.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = ("assess", "--inputs", "50", "--draws", "10", "--sources", "uniform", "--out", "run")


def main() -> None:
    """Raise where a step fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"

        def run(*command: str | Path) -> None:
            subprocess.run(command, check=True, cwd=folder)

        run(sys.executable, "-m", "build", "--outdir", "dist", ROOT)
        built = sorted((folder / "dist").iterdir())
        run(sys.executable, "-m", "twine", "check", "--strict", *built)
        venv.create(folder / "venv", with_pip=True)
        wheel = next(path for path in built if path.suffix == ".whl")
        pinned = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "--quiet", "--constraint", pinned, wheel)
        run(python.with_name("nppr"), *SMALL)
        if not (folder / "run" / "report.html").exists():
            raise SystemExit("the installed wheel wrote no report.html")


if __name__ == "__main__":
    main()
