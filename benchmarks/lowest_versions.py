"""Run the quick tests with the oldest versions that pyproject.toml admits.

    python benchmarks/lowest_versions.py [SCRATCH] [pytest argument ...]

Every `>=` of the dependencies and extras becomes an `==` in a new environment in SCRATCH. PyTorch
is taken as constraints.txt pins it: its older builds are large. The last line is the result to record.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("attacks", "hf", "onnx", "pandas", "parquet")
TOOLS = ("hypothesis", "onnx", "pypdf", "pytest", "pytest-xdist", "cyclonedx-python-lib")
"""Of the development tools those that the tests import; their versions are those of constraints.txt."""


def lowest_pins() -> list[str]:
    """The lower bound of every dependency as an exact version, PyTorch as it is developed with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    bounds = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    pins = [re.sub(r">=([\w.]+).*", r"==\1", each) for each in bounds]
    return [pin for pin in pins if not pin.startswith("torch==")]


def tool_pins() -> list[str]:
    """PyTorch and the tools of the tests, as constraints.txt pins them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    return [f"{name}=={pinned[name]}" for name in ("torch", *TOOLS)]


def main() -> int:
    """Install and test; the exit code is that of pytest."""
    scratch = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/nppr-lowest")
    python = str(scratch / "bin" / "python")
    venv.create(scratch, with_pip=True, clear=True)
    pins = lowest_pins()
    install = [python, "-m", "pip", "install", "--quiet"]
    extra = [each + "[json-validation]" * each.startswith("cyclone") for each in TOOLS]
    tools = [
        pin.replace(each.split("[")[0], each, 1)
        for pin, each in zip(tool_pins(), ("torch", *extra), strict=True)
    ]
    subprocess.run([*install, *pins, *tools], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    # Old versions use what newer ones deprecate; that is not for these tests to find.
    quiet = ["-W", "ignore::DeprecationWarning"]
    tests = [python, "-m", "pytest", "-m", "not slow", *quiet, *sys.argv[2:]]
    code = subprocess.run(tests, cwd=ROOT, check=False).returncode
    print(f"Python {sys.version.split()[0]}, {', '.join(sorted(pins))}: exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
