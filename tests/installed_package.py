"""Packages that add to nppr, written into a folder as an installer leaves them there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCK = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)


def install(folder: Path, name: str, points: dict[str, dict[str, str]], **modules: str) -> None:
    """Write modules and the metadata of a distribution with entry points by group."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {place}\n" for key, place in named.items())
        for group, named in points.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups))


def install_the_package_of_the_page(folder: Path) -> None:
    """Install the package of docs/extending.md, as its `pyproject.toml` declares it."""
    files = {found["title"]: found["text"] for found in BLOCK.finditer(PAGE.read_text())}
    project = tomllib.loads(files["pyproject.toml"])
    (module,) = project["tool"]["setuptools"]["py-modules"]
    declared = project["project"]
    install(folder, declared["name"], declared["entry-points"], **{module: files[f"{module}.py"]})
