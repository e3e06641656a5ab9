"""What the site has beside the pages of docs/: the examples, the changelog, links to both.

Links such as `../examples/tasks.py` lead to a file on GitHub. On the site they lead to a page made of
that file.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([\w./-]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LIST_AFTER_TEXT = re.compile(r"(?m)^([^\s\-|>#`].*\n)(?=- )")
INLINE_CODE = re.compile(r"<code>[^<]*</code>")
FILE_NAMED = re.compile(r"docs/(\w+)\.md")
WITHOUT_PAGE = ("console_picture.py", "page_picture.py", "readme_numbers.py")
"""They make pictures and numbers of this documentation."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog and a page for every example."""
    examples = _examples()
    for uri, text in {**examples, "changelog.md": (ROOT / "CHANGELOG.md").read_text()}.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to files outside docs/ to the pages made of them."""
    folder = posixpath.dirname(page.file.src_uri)
    source = "" if page.file.src_uri == "changelog.md" else f"docs/{folder}"

    def replaced(link: re.Match[str]) -> str:
        uri = _page_of(posixpath.normpath(posixpath.join(source, link[1])))
        if uri is None:
            return link[0]
        return f"]({posixpath.relpath(uri, folder or '.')}{link[2] or ''})"

    return _with_lists(LINK.sub(replaced, markdown))


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Drop the backslash of `|` in code, which GitHub needs; link pages that docstrings name."""
    html = INLINE_CODE.sub(lambda code: code[0].replace(r"\|", "|"), html)
    if page.file.src_uri != "reference.md":
        return html

    def linked(named: re.Match[str]) -> str:
        known = files.get_file_from_path(f"{named[1]}.md")
        return f'<a href="{named[1]}.html">{named[1]}</a>' if known else named[0]

    return FILE_NAMED.sub(linked, html)


def _with_lists(markdown: str) -> str:
    """An empty line before every list: on GitHub it may be left out."""
    parts = FENCED.split(markdown)
    parts[::2] = [LIST_AFTER_TEXT.sub(r"\1\n", part) for part in parts[::2]]
    return "".join(parts)


def _page_of(target: str) -> str | None:
    """The page that is made of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target == "README.md":
        return "index.md"
    if target == "CHANGELOG.md":
        return "changelog.md"
    uri = posixpath.splitext(target)[0] + ".md"
    return uri if uri in _examples() else None


def _examples() -> dict[str, str]:
    """Pages by their address; the first one lists the others."""
    pages = dict[str, str]()
    lines = ["# Examples", "", "Files of the folder `examples/` of the repository.", ""]
    for path in sorted((ROOT / "examples").rglob("*.*")):
        if path.suffix not in (".py", ".toml", ".ipynb") or path.name in WITHOUT_PAGE:
            continue
        text = path.read_text()
        name = path.relative_to(ROOT).as_posix()
        uri = posixpath.splitext(name)[0] + ".md"
        if path.suffix == ".ipynb":
            about, body = "A notebook, cell by cell.", _cells(text)
        elif path.suffix == ".py":
            about = ast.get_docstring(ast.parse(text)) or ""
            body = f"````python\n{text}````\n"
        else:
            about, body = text[2:], f"````toml\n{text}````\n"
        pages[uri] = f"# {name}\n\n{body}"
        lines.append(f"- [{name}]({uri}): {about.splitlines()[0]}")
    return {"examples.md": "\n".join(lines) + "\n", **pages}


def _cells(notebook: str) -> str:
    """The cells of a notebook as Markdown."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        code = cell["cell_type"] == "code"
        parts.append(f"````python\n{text}\n````" if code else re.sub("(?m)^# ", "## ", text))
    return "\n\n".join(parts) + "\n"
