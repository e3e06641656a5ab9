"""What the commands of the safety net write, as flat tables of names and numbers.

Where the layout of a file changes, its reader follows and the names stay: then what was recorded before
the change can still be checked. Readers take the folder of a command; `printed` is its standard output.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from nppr.report.number import Number, split_intervals
from nppr.statistics.noise_sets import make_set
from nppr.system.records import read_record

Value = int | float | str | None
Values = dict[str, Value]
Reader = Callable[[Path], Values]


def read_results(folder: Path) -> Values:
    """Every interval of every number of a report, at its own radius and at the others."""
    report = _json(folder / "report.json")
    read = _read_rows if report["schema_version"] < 3 else _read_numbers
    found: Values = {"grade": report["grade"]["letter"]}
    for table in ("results" if "results" in report else "numbers", "other_radii"):
        for name, row in read(report[table]):
            radius = f"radius {row['radius']}" if table == "other_radii" else ""
            gamma = "" if row["gamma"] is None else f"gamma {row['gamma']}"
            entry = _name("result", radius, name, row["metric"], row["method"], gamma)
            found |= _pick(entry, row, "value low high draws inputs calls")
    return found


def _read_numbers(numbers: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each number with its facts, once for each interval or failure."""
    for each in numbers:
        number = Number.model_validate_json(json.dumps(each))
        facts = each | {"radius": number.radius, "method": None, "low": None, "high": None}
        if not number.intervals:
            yield number.name, facts
        for part in split_intervals(number):
            yield number.name, facts | part.intervals[0].model_dump() | {"value": part.value}


def _read_rows(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same of a report before schema version 3, which has a row for each interval."""
    for row in rows:
        parts = [row["source"], *([row["dependency"]] if row["dependency"] else [])]
        parts += [f"floor={row['floor']:g}"] if row["floor"] else []
        parts += [f"fit-seed={row['fit_seed']}"] if row["fit_seed"] is not None else []
        if row["noise_set"] is not None:
            parts.append(make_set(row["noise_set"], row["size"], row["density_ratio"]).label)
        parts += [f"q={row['order']:.15g}"] if row["order"] is not None else []
        yield ":".join(parts) + " (lowest of the set)" * row["with_references"], row


def read_per_input(folder: Path) -> Values:
    """The counts of every source: their sums, and a hash of the whole sequence."""
    sources: dict[str, list[dict[str, str]]] = {}
    for line in _lines(folder / "per_input.csv"):
        sources.setdefault(line["source"], []).append(line)
    found: Values = {}
    for source, lines in sources.items():
        correct = "correct" if "correct" in lines[0] else "right"
        counts = ("index", "label", "clean_correct", "draws", correct)
        table = [[int(line[count]) for count in counts] for line in lines]
        ends = [math.fsum(float(line[end]) for line in lines) for end in ("low", "high")]
        record = {
            "inputs": len(table),
            "draws": sum(row[3] for row in table),
            "correct": sum(row[4] for row in table),
            "sum of low": ends[0],
            "sum of high": ends[1],
            "sha256": _hash(json.dumps(table).encode()),
        }
        found |= _pick(_name("per input", source), record)
    return found


def read_learned(folder: Path) -> Values:
    """The fits behind learned noise. Candidates are known by their values, not by their names."""
    found: Values = {}
    for path in sorted((folder / "distributions").glob("*.safetensors")):
        made, name = read_record(path)[1], _name("learned", path.stem)
        fit = made["search"]
        found |= _pick(name, fit, "select_value fit_calls forward_calls")
        found |= _pick(_name(name, "diagnostics"), made["diagnostics"])
        found |= read_tensors(path, name)
        references = (fit["references"] or {}).get("select_values", {})
        found |= _in_order(_name(name, "with references"), references)
        for number, stage in enumerate(fit["stages"]):
            at = _name(name, f"stage {number}")
            found |= _pick(at, stage, "dependency components floor fit_calls forward_calls")
            found |= _in_order(_name(at, "select value"), stage["select_values"])
            for curve in ("loss", "running_pr"):
                found[_name(at, curve, "steps")] = len(stage[curve])
                found[_name(at, curve, "sum")] = math.fsum(stage[curve])
    return found


def read_extras(folder: Path) -> Values:
    """What --rare, --precision and --fit-seeds add to a report."""
    report = _json(folder / "report.json")
    found: Values = {}
    for entry in report["rare"]:
        fields = "unbroken calls largest median added particles replicates"
        name = _name("rare", entry["source"])
        found |= _pick(name, entry | {"looked_at": entry["followed"]}, f"{fields} looked_at")
        status = {"out of calls": entry["out_of_calls"], **entry}
        found |= {
            _name(name, "status", key): status[key] for key in ("found", "below", "out of calls")
        }
    for line in _lines(folder / "rare.csv") if report["rare"] else ():
        numbers = {key: float(line[key]) for key in ("p", "low", "high", "calls")}
        found |= _pick(_name("rare", line["source"], f"input {line['index']}"), numbers)
    if report["precision"]:
        reached = report["precision"]
        found |= _pick("precision", reached, "reached available_inputs needed_inputs")
        found["precision / rounds"] = json.dumps(reached["rounds"])
        for source, width in reached["widths"].items():
            found |= _pick(_name("precision", source), width, "half_width between within")
    for rung in report["ladder"]:
        name = _name("rung", rung["name"])
        found |= _pick(name, rung, "floor value calls half full strongest_value smaller_radius")
        for list_ in ("restarts", "seeds"):
            found |= {_name(name, list_, place): each for place, each in enumerate(rung[list_])}
    return found


def read_printed(folder: Path) -> Values:
    """The rows that bound and spectrum print."""
    found: Values = {}
    for number, entry in enumerate(_json(folder / "printed")):
        numbers = {key: value for key, value in entry.items() if not isinstance(value, str)}
        found |= _pick(f"printed {number}", numbers)
    return found


def read_certificate(folder: Path) -> Values:
    """A verdict, and the verdicts on the classes."""
    printed = _json(folder / "printed")
    (decision,) = printed["decisions"]
    found = _pick("certificate", decision, "verdict draws low high inputs")
    found["certificate / calls"] = printed["calls"]
    found["certificate / right"] = round(decision["value"] * decision["draws"])
    for label, each in enumerate(decision["slices"]):
        name = _name("certificate", "class", label)
        right = round(each["value"] * each["draws"])
        found |= _pick(name, each, "verdict draws") | {_name(name, "right"): right}
    return found


def read_doctor(folder: Path) -> Values:
    """The grade and the flags."""
    printed = _json(folder / "printed")
    flags = sorted(flag["id"] for flag in printed["flags"])
    return {"grade": printed["grade"], "flags": " ".join(flags)}


def read_comparison(folder: Path) -> Values:
    """The value of every run, and the paired differences."""
    found: Values = {}
    ends = "guaranteed_low guaranteed_high approximate_low approximate_high"
    counts = "inputs first_better second_better p_value adjusted_p_value"
    for row in _json(folder / "compare.json")["results"]:
        name = _name("compare", row["source"], row["metric"])
        for each in row["standings"]:
            fields = "value low high std normalised inputs draws rank"
            found |= _pick(_name(name, f"run {each['entry']}"), each, fields)
        for each in row["differences"]:
            pair = f"{each['first']} - {each['second']}"
            found |= _pick(_name(name, pair), each, f"value {ends} {counts} separated")
    return found


def read_study(folder: Path) -> Values:
    """The cells of all tables, and the nested pairs."""
    study = _json(folder / "study.json")
    found: Values = {}
    for table in study["tables"]:
        for entry in table["entries"]:
            for column, cell in enumerate(entry["ours"]):
                name = _name("table", table["name"], *entry["labels"], f"column {column}")
                fields = "mean std low high lowest highest seeds fit_seeds"
                found |= _pick(name, cell, fields) if cell else {name: None}
    for pair in study["orders"]["pairs"]:
        found |= _pick(_name("order", pair["small"], pair["large"]), pair, "points p_value wrong")
    return found


def read_training(folder: Path) -> Values:
    """Losses, accuracies and weights."""
    log = _json(folder / "weights.json")
    found = read_tensors(folder / "weights.safetensors", "weights")
    found |= _pick("evaluate", log["evaluate"], "inputs accuracy")
    for epoch in log["train"]["epochs"]:
        found |= _pick(_name("epoch", epoch["epoch"]), epoch, "loss accuracy")
    return found


def read_tensors(path: Path, name: str) -> Values:
    """The bytes of all tensors, whatever their names and their order in the file."""
    tensors = load_file(path).values()
    hashes = sorted(_hash(tensor.tobytes()) for tensor in tensors)
    elements = sum(tensor.size for tensor in tensors)
    return _pick(name, {"elements": elements, "sha256": _hash("".join(hashes).encode())})


def _pick(name: str, record: Mapping[str, Any], fields: str | None = None) -> Values:
    keys = record if fields is None else fields.split()
    return {_name(name, key): record[key] for key in keys}


def _in_order(name: str, values: Mapping[str, float]) -> Values:
    return {_name(name, place): value for place, value in enumerate(sorted(values.values()))}


def _name(*parts: object) -> str:
    return " / ".join(str(part) for part in parts if part != "")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
