"""Gather the tables of finished studies in one page: `python studies/results.py OUT.md FOLDER...`.

Sections of other studies that the page has already are kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """# Results of the small studies

`make reproduce` runs `studies/small/digits_*.toml`, the paper's tables on scikit-learn's digits and
small networks, and writes their sections: the numbers are not the paper's, but the orders that theory
demands are the same; each section reports whether they hold. Studies on CIFAR-10 are run separately;
`resnet18_paper` has the paper's numbers beside ours. Each section states the version of nppr that made
it: 0.1.0 had a weaker search. Learned noise gives an upper bound on the infimum over its family.
Fractions are in % and clean-normalised unless a table states otherwise; `mean ± standard deviation` is
over evaluation seeds of one fit, in brackets the lowest and highest over fit seeds, where there are
several, in parentheses the interval over inputs of the first seed. An upper bound is what may be
claimed, `≤` the upper end of that interval, then what was observed. What each file holds:
[studies](studies.md).
"""
SHOWN = 0.1
"""Percentage points above which a raw difference in the wrong direction is shown."""


def machine(folder: Path) -> str:
    """On what a study ran."""
    named = _study(folder)["machine"].items()
    return (
        f"Made by {', '.join(f'{name} {value}' for name, value in named)}, one thread per node.\n"
    )


def section(folder: Path) -> str:
    """The tables of one study, and its nested pairs in short."""
    study = _study(folder)
    parts = [f"## {study['title'].rstrip('.')}\n", f"`studies/small/{folder.name}.toml`\n"]
    parts.append(f"{seeds(study['spec']['grids']).rstrip()} {machine(folder)}")
    for table in study["tables"]:
        text = (folder / f"{table['name']}.md").read_text(encoding="utf-8")
        parts += [f"**{table['title']}**\n", text]
    if study["orders"] and study["orders"]["pairs"]:
        parts.append(orders(folder, study["orders"]))
    return "\n".join(parts)


def seeds(grids: list[dict[str, Any]]) -> str:
    """The seeds of all grids, each once, and of what they are."""
    found = []
    for grid in grids:
        fits = f", of fits {_listed(grid['fit_seeds'])}" if grid["dependencies"] else ""
        name = f"{grid['name']}: " if grid["name"] else ""
        found.append(f"{name}of measurements {_listed(grid['seeds'])}{fits}")
    return "Seeds: " + "; ".join(dict.fromkeys(found)) + ".\n"


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def orders(folder: Path, found: dict[str, Any]) -> str:
    """How many nested pairs are in order, tied or not, and the raw differences above 0.1 points."""
    pairs = json.loads((folder / "orders.json").read_text(encoding="utf-8"))
    wrong = [pair for pair in pairs if pair["wrong"]]
    raw = [pair for pair in pairs if pair["points"] > SHOWN]
    lines = [
        f"**Nested pairs:** {len(found['pairs'])}, of which {found['in_order']} in order,"
        f" {found['tied']} tied (the same on every input), {len(wrong)} in the wrong order by the"
        f" paired one-sided 95 % test with Holm over pairs that are not tied, and {len(raw)} with a raw"
        f" difference above {SHOWN} points" + ("." if found["fitted_apart"] or not raw else ":")
    ]
    if found["fitted_apart"]:
        lines.append(
            "These families are fitted one by one, as in the paper: nothing keeps them in order."
        )
    lines += [
        f"- {pair['where']}: {pair['larger']} is {pair['points']:.2f} points above {pair['smaller']}"
        f" (p = {pair['p_value']:.2g})"
        for pair in raw
    ]
    return "\n".join(lines) + "\n"


def _study(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    return content


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page by the names of their studies."""
    found = {}
    for text in page.split("\n## ")[1:]:
        name = text.split("`studies/small/")[1].split(".toml`")[0]
        found[name] = f"## {text.rstrip()}\n"
    return found


def main(out: Path, folders: list[Path]) -> None:
    """Write the page."""
    known = sections_of(out.read_text(encoding="utf-8")) if out.exists() else {}
    known |= {folder.name: section(folder) for folder in folders}
    text = "\n".join([HEAD, *(known[name] for name in sorted(known))])
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
