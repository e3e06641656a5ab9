"""The code of the guides runs as it stands, and every option that the documentation names exists."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

import nppr
from nppr.cli import COMMANDS, run
from nppr.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = [DOCS / "index.md", *sorted((DOCS / "guides").glob("*.md"))]
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n)?^```(?P<kind>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OTHERS = {
    *("--editable", "--constraint"),  # pip
    "--calls",  # benchmarks
}


@dataclass(frozen=True)
class Block:
    """A fenced block of code; with a `title`, the file it is to be saved as."""

    kind: str
    title: str | None
    line: int
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that are not marked by `<!-- not run: REASON -->`."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if not found["skip"]:
            line = text.count("\n", 0, found.start("text"))
            yield Block(found["kind"], found["title"], line, found["text"])


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    found = list(blocks(page))
    assert {"python", "console"} & {block.kind for block in found}
    for block in found:
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.kind == "python":
            code = compile("\n" * block.line + block.text, str(page), "exec")
            exec(code, names)
        elif block.kind == "console":
            run_commands(block, page)
        else:
            assert block.kind in ("text", "toml"), f"{page}:{block.line}: mark what is not run"


def run_commands(block: Block, page: Path) -> None:
    """Run the lines after `$`; `$ echo $?` states the exit code of the one before, else it is 0."""
    lines = block.text.splitlines()
    last, stated = 0, False
    for number, line in enumerate(lines):
        if not line.startswith("$ "):
            continue
        place = f"{page}:{block.line + number + 1}: {line}"
        if line == "$ echo $?":
            assert lines[number + 1] == str(last), place
            stated = True
            continue
        assert last == 0 or stated, place
        last, stated = run_command(shlex.split(line[2:]), place), False
    assert last == 0 or stated, f"{page}:{block.line}: exit code {last}"


def run_command(command: list[str], place: str) -> int:
    if command[0] == "nppr":
        return run(command[1:])
    assert command[0] == "pytest", f"{place}: mark what is not run"
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode


def options() -> dict[str, set[str]]:
    """The options of every command."""
    group = typer.main.get_command(app)
    found = dict[str, set[str]]()
    for name in COMMANDS:
        command = group.commands[name]  # type: ignore[attr-defined]
        found[name] = {"--help"}.union(
            *({*each.opts, *each.secondary_opts} for each in command.params)
        )
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_in_the_documentation_exist(page: Path) -> None:
    known = options()
    anywhere = set[str]().union(*known.values()) | OTHERS
    for number, line in enumerate(page.read_text().splitlines(), 1):
        place = f"{page.name}:{number}"
        assert not (set(OPTION.findall(line)) - anywhere), place
        for options_of, rest in commands_in(line, known):
            assert not (set(OPTION.findall(rest)) - options_of - OTHERS), place


def commands_in(text: str, known: dict[str, set[str]]) -> list[tuple[set[str], str]]:
    """The options of the commands that a text names, and the words behind each."""
    found = re.findall(r"\bnppr ([a-z]+) ([^`|#]*)", text)
    return [(known[command], rest) for command, rest in found if command in known]


def test_pages_name_commands_with_their_options() -> None:
    known = options()
    found = [each for page in PAGES for each in commands_in(page.read_text(), known)]
    assert sum(bool(OPTION.findall(rest)) for _, rest in found) > 30


def test_the_reference_has_every_public_name() -> None:
    listed = set(
        re.findall(r"^::: nppr\.(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    )
    assert listed == set(nppr.__all__)


def test_every_name_of_the_reference_exists() -> None:
    text = (DOCS / "reference.md").read_text()
    entries = re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", text, re.MULTILINE)
    assert len(entries) > 30
    missing = []
    for name, options in entries:
        module, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(module), last, None)
        members = re.search(r"\bmembers: \[(.*)\]", options)
        wanted = members[1].split(", ") if members and members[1] else []
        fields = getattr(found, "__dataclass_fields__", {})
        missing += [name] * (found is None)
        missing += [
            f"{name}.{each}" for each in wanted if not hasattr(found, each) and each not in fields
        ]
    assert missing == []
    listed = dict(entries)
    assert "sample" in listed["nppr.Learned"]
    assert "to_pandas" in listed["nppr.Report"]


def test_nothing_says_to_install_another_project() -> None:
    """The name nppr on the package index is another project's."""
    for page in PAGES:
        assert not re.search(r"pip install '?nppr", page.read_text()), page
