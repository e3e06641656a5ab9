"""Give nppr thousands of mutated inputs: each must be refused in one line, or give a result.

    python benchmarks/mutation_campaign.py --mutations 10000 --seed 0

Options, specs of sources, studies, policies, runs (reports, lines, evidence), distributions, weights
and every format of data are mutated: values that are too large, of another kind or not there, bytes
that are changed, cut or repeated. A run that was admitted and is still at work after 20 seconds of
processor time is stopped and counted apart. A fault is an exception that is not nppr's own (a traceback
for the user), an answer of several lines or with control characters, 20 seconds of processor time for
anything but measuring and fitting, 10 minutes of waiting, or more than 2 GB.

Batches of mutations run in forked processes that have a limit of memory; the parent has loaded PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppr.cli import console, run
from nppr.cli.commands import (
    AssessOptions,
    BoundOptions,
    BracketOptions,
    CertifyOptions,
    DoctorOptions,
    FitOptions,
    SourcesOptions,
    SpectrumOptions,
    TrainCommandOptions,
)
from nppr.compare import compare_runs  # noqa: F401
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.errors import NpprError, mark_controls
from nppr.formats import NETWORKS
from nppr.gate.gate import decide_policy  # noqa: F401  loaded before forking
from nppr.gate.policy import read_policy
from nppr.models import load_classifier
from nppr.models.weight_files import read_weights
from nppr.search.learned_noise import load_learned
from nppr.settings import Group, settings_in
from nppr.sources import SOURCES, option_defaults, parse_sources
from nppr.study.plan import plan
from nppr.study.study_file import read_study
from nppr.system.records import read_record, write_record, write_tensors

SECONDS = 20
"""Of the processor: a busy machine makes no fault."""

WAIT_SECONDS = 600
"""Of the clock, for what waits and takes no processor time."""

MEMORY = 2 << 30
BATCH = 40
NOT_CHANGED = {
    "out", "cache", "junit", "markdown", "ray", "run_code", "resume", "quiet", "as_json", "page",
    "figures", "workers", "file", "policy", "run",
}  # fmt: skip
"""Options that name places to write to, or start other programs."""

NUMBERS = (
    "0", "-1", "1", "2", "3", "7", "0.5", "-0.0", "1e308", "1e309", "nan", "inf", "-inf", "5e-324",
    "1e-9", "1e9", "65536", "2147483648", "9223372036854775807", "18446744073709551616",
    "1000000000000", "1" * 40, "9" * 5000, "0x10", "1_000", "١٢", "1,2,3", "0,0", "1e3", "8/255", "8/0",
    "1/3", "99999/1", "0.1,nan",
)  # fmt: skip
TEXTS = (
    "", " ", ",", ":", "=", "::", "a=b", "\x1b[2J", "\x00", "\n", "a\nb", "=1+1", "../..", "/", ".",
    "/dev/null", "/dev/zero", "/nonexistent/file", "é" * 50, "a" * 10_000, "True", "null", "[]", "{}",
    "%s", "uniform", "label", "l2", "paper", "digits", "resnet20", "random", "scores", "\ud800", "🙂",
)  # fmt: skip
TINY = (
    "--inputs", "10", "--batch-size", "16", "--quiet",
)  # fmt: skip
SEARCH = ("--fit-inputs", "32", "--select-inputs", "10", "--fit-calls", "512")
SHORT = ("--draws", "2", "--no-page", "--overwrite")
ASSESS = (
    "assess", *TINY, *SEARCH, "--draws", "4", "--floor", "0", "--dependency", "joint", "--sources",
    "nppr,uniform,pgd:steps=2", "--no-page",
)  # fmt: skip
"""The run that is changed afterwards."""

COMMANDS: dict[str, tuple[type[Group], tuple[str, ...]]] = {
    "assess": (AssessOptions, (*TINY, *SEARCH, *SHORT, "--sources", "uniform")),
    "fit": (FitOptions, (*TINY, *SEARCH, "--dependency", "independent", "--overwrite")),
    "evaluate": (SourcesOptions, (*TINY, *SHORT)),
    "spectrum": (SpectrumOptions, (*TINY, *SEARCH, *SHORT, "--dependency", "independent")),
    "bound": (BoundOptions, (*TINY, *SHORT, "--patterns", "4")),
    "bracket": (BracketOptions, (*TINY, *SHORT, "--eps", "0.25", "--sigma", "0.25")),
    "certify": (CertifyOptions, (*TINY, "--at-least", "0.5", "--calls", "200")),
    "doctor": (DoctorOptions, ("--inputs", "10")),
    "train": (
        TrainCommandOptions,
        ("digits-cnn", "--epochs", "1", "--fit-inputs", "20", "--select-inputs", "10", "--quiet",
         "--overwrite"),
    ),
}  # fmt: skip
LATER_ARE_TAKEN = {"assess", "fit", "evaluate", "spectrum", "bound", "bracket", "train"}
"""Commands with --out."""


SOUND = ("ok", "refused", "at work")
_latest: list[str] = []
"""The arguments of the last command, for what is printed of a fault."""


class Hang(BaseException):
    """A mutation that took too long."""


@dataclass(frozen=True)
class Outcome:
    """How one mutation ended: ok, refused or a kind of fault, with what it was."""

    family: str
    kind: str
    what: str = ""


@dataclass
class Materials:
    """Sound inputs of every kind, from which mutations are made."""

    place: Path
    run: Path = field(init=False)
    report: Any = field(init=False)
    studies: list[str] = field(init=False)
    data: list[Path] = field(init=False)

    def __post_init__(self) -> None:
        self.run = self.place / "run"
        assert run([*ASSESS, "--out", str(self.run)]) == 0
        self.report = json.loads((self.run / "report.json").read_text())
        small = Path(__file__).parent.parent / "studies" / "small"
        self.studies = [path.read_text() for path in sorted(small.glob("digits_*.toml"))]
        self.data = [*_made_data(self.place / "data")]
        weights = load_classifier("digits-cnn").module
        assert weights is not None
        state = {name: each.clone() for name, each in weights.state_dict().items()}
        write_tensors(self.place / "w.safetensors", state, {"classes": "10", "mean": "0.5"})
        torch.save(state, self.place / "w.pt")


def _made_data(place: Path) -> Iterator[Path]:
    """A small data set in every format."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from data import layouts  # type: ignore[import-not-found,unused-ignore]

    yield layouts.cifar_10(place)[0]
    yield layouts.cifar_100(place)[0]
    yield layouts.tar(place / "cifar-100-python")
    yield layouts.tiny_imagenet(place)[0]
    yield layouts.zipped(place / "tiny-imagenet-200")
    yield layouts.mnist(place / "mnist")[0]
    yield layouts.mnist(place / "packed", packed=True)[0]
    images = layouts.pixels(12, 3, 8)
    yield layouts.image_folder(place / "photos", images, ("a", "b", "c"))
    np.savez(place / "a.npz", x=images, y=layouts.labels(12, 3))
    yield place / "a.npz"
    np.savez_compressed(place / "b.npz", x=images / 255, y=layouts.labels(12, 3))
    yield place / "b.npz"
    contents = [layouts.encode(each) for each in images]
    layouts.parquet(place / "table.parquet", contents, [n % 2 for n in range(12)])
    yield place / "table.parquet"


Mutation = Callable[[random.Random, Materials, Path], object]


def mutate_option(draw: random.Random, made: Materials, place: Path) -> object:
    """A command with one or two options of another value."""
    command = draw.choice(list(COMMANDS))
    model, given = COMMANDS[command]
    arguments = [command, *given]
    if command == "evaluate":
        arguments += ["--distribution", str(made.run)]
    if command in LATER_ARE_TAKEN:
        arguments += ["--out", str(place / ("w.safetensors" if command == "train" else "out"))]
    settings = settings_in(model)
    names = [name for name in settings if name.islower() and settings[name].name not in NOT_CHANGED]
    for name in draw.sample(names, draw.choice((1, 1, 2))):
        arguments.append(f"--{name}")
        if settings[name].kind is not bool:
            arguments.append(draw.choice((*NUMBERS, *NUMBERS, *TEXTS)))
    return _command(arguments)


def mutate_source(draw: random.Random, _: Materials, place: Path) -> object:
    """The spec of a source, parsed; where it is admitted and quick, it is measured."""
    kind = draw.choice(list(SOURCES))
    names = [name.replace("_", "-") for name in option_defaults(SOURCES[kind])]
    parts = [
        f"{draw.choice(names)}={draw.choice((*NUMBERS, *TEXTS))}"
        for _ in range(draw.randint(0, 2))
        if names
    ]
    text = (
        _scrambled(draw, ":".join([kind, *parts]))
        if draw.random() < 0.3
        else ":".join([kind, *parts])
    )
    budget = draw.choice((Budget.linf(0.1), Budget.l2(0.5), Budget.box("rotate=15")))
    sources = parse_sources(text, budget)
    if max(each.cost for each in sources) > 500 or kind == "autoattack":
        return None
    if budget.norm.name == "linf" and draw.random() < 0.3:
        chosen = [*TINY, *SHORT, "--fit-inputs", "32", "--sources", text.replace(" ", "")]
        return _command(["assess", *chosen, "--out", str(place / "out")])
    return None


def mutate_study(draw: random.Random, made: Materials, place: Path) -> object:
    """A study with changed lines, values or bytes, read and planned."""
    path = place / "study.toml"
    path.write_bytes(_changed_text(draw, draw.choice(made.studies)))
    return plan(read_study(path), device="cpu")


POLICY = """
model = "digits-cnn"
data = "digits"
norm = "linf"
eps = "0.1"
inputs = 20
draws = 4
seed = 0
confidence = 0.95
calls = 2000
require = [
    "PR uniform >= 0.9",
    "NPPR independent floor 0.5 >= 0.8",
    "bound tv:0.05 >= 0.9",
    "worst class >= 0.7",
    "grade >= B",
    "no flag masking",
]
"""


def mutate_policy(draw: random.Random, _: Materials, place: Path) -> object:
    """A policy with changed lines, values or bytes."""
    path = place / "policy.toml"
    path.write_bytes(_changed_text(draw, POLICY))
    return read_policy(path)


def mutate_run(draw: random.Random, made: Materials, place: Path) -> object:
    """A run folder with a changed report, lines, evidence or record, shown, compared or exported."""
    folder = place / "run"
    shutil.copytree(made.run, folder)
    kind = draw.choice(("report", "report", "report", "per_input", "evidence", "bytes"))
    if kind == "report":
        tree = _changed_tree(draw, json.loads(json.dumps(made.report)))
        (folder / "report.json").write_text(json.dumps(tree))
    elif kind == "evidence":
        _change_record(draw, folder / "evidence.safetensors")
    else:
        name = {"per_input": "per_input.csv"}.get(kind) or draw.choice(
            ("report.json", "per_input.csv", "evidence.safetensors", "run.json", "manifest.json")
        )
        path = folder / name
        path.write_bytes(_changed_bytes(draw, path.read_bytes()))
    command = draw.choice(
        (
            ["report", str(folder), "--format", draw.choice(("md", "csv", "latex", "json"))],
            ["report", str(folder), "--format", "html"],
            ["compare", str(made.run), str(folder), "--out", str(place / "compare"), "--quiet"],
            ["export", str(folder), "--to", draw.choice(("safety-case", "cyclonedx"))],
        )
    )
    if kind == "bytes":
        command = [*ASSESS, "--out", str(folder), draw.choice(("--resume", "--overwrite"))]
    return _command(command)


def mutate_distribution(draw: random.Random, made: Materials, place: Path) -> object:
    """A learned distribution with a changed record, tensors or bytes, loaded and measured."""
    source = draw.choice(sorted((made.run / "distributions").iterdir()))
    path = Path(shutil.copy(source, place))
    if draw.random() < 0.5:
        _change_record(draw, path)
    else:
        path.write_bytes(_changed_bytes(draw, path.read_bytes()))
    found = load_learned(path)
    arguments = [*TINY, *SHORT, "--distribution", str(path), "--out", str(place / "out")]
    return found and _command(["evaluate", *arguments])


def mutate_weights(draw: random.Random, made: Materials, place: Path) -> object:
    """A weights file with changed bytes, tensors or metadata, loaded into a network."""
    path = Path(shutil.copy(made.place / draw.choice(("w.safetensors", "w.pt")), place))
    if draw.random() < 0.5:
        path.write_bytes(_changed_bytes(draw, path.read_bytes()))
    else:
        tensors = _changed_tensors(draw, dict(read_weights(path).tensors))
        if path.suffix == ".pt":
            torch.save(tensors, path)
        else:
            numbers = {name: draw.choice((*NUMBERS, *TEXTS)) for name in ("classes", "mean", "std")}
            known = {name: text for name, text in numbers.items() if "\ud800" not in text}
            write_tensors(path, tensors, known)
    network = draw.choice(("digits-cnn", "digits-cnn", *NETWORKS[-5:-3]))
    return load_classifier(network, weights=str(path), data=load_data("digits"))


def mutate_data(draw: random.Random, made: Materials, place: Path) -> object:
    """A data set with a file that is changed, removed or renamed, of which every image is read."""
    source = draw.choice(made.data)
    copy = place / source.name
    shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    files = [copy] if copy.is_file() else sorted(path for path in copy.rglob("*") if path.is_file())
    chosen = draw.choice(files)
    change = draw.random()
    if change < 0.85 or copy.is_file():
        chosen.write_bytes(_changed_bytes(draw, chosen.read_bytes()))
    elif change < 0.92:
        chosen.unlink()
    else:
        chosen.rename(chosen.with_name(draw.choice(("x", "a.png", "b.npz", "\x1b[2J.png", "é"))))
    data = load_data(copy)
    return [split.batch(np.arange(len(split)))[0].sum() for split in data.splits]


FAMILIES: dict[str, tuple[int, Mutation]] = {
    "options": (15, mutate_option),
    "sources": (15, mutate_source),
    "studies": (15, mutate_study),
    "policies": (15, mutate_policy),
    "runs": (10, mutate_run),
    "distributions": (10, mutate_distribution),
    "weights": (10, mutate_weights),
    "data": (20, mutate_data),
}
"""Weights and functions of the families."""


def _command(arguments: Sequence[str]) -> int:
    """The exit code of a command; what it prints on errors must be lines that stand alone."""
    _latest[:] = arguments
    text = io.StringIO()
    console.out.file = console.err.file = text
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = run(arguments)
    printed = text.getvalue()
    if code == 2 and len(printed.strip().splitlines()) != 1:
        raise AssertionError(f"not one line: {printed[:300]!r}")
    if "Traceback" in printed or mark_controls(printed) != printed:
        raise AssertionError(f"not for people: {printed[:300]!r}")
    if code == 2:
        raise NpprError(printed.strip())
    return code


def _scrambled(draw: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(letters) + 1)
        letters[place : place + draw.randint(0, 2)] = draw.choice((*":=,+ -", "\x1b", "é", "0", ""))
    return "".join(letters)


def _changed_text(draw: random.Random, text: str) -> bytes:
    """A text of lines `key = value` with a changed value, line, letter or byte."""
    lines = text.splitlines()
    change = draw.random()
    places = [place for place, line in enumerate(lines) if "=" in line]
    place = draw.choice(places)
    if change < 0.6:
        key = lines[place].split("=", 1)[0]
        value = draw.choice((*NUMBERS, *TEXTS))
        many = f"[{', '.join(map(str, range(300_000)))}]" if draw.random() < 0.02 else "true"
        quoted = json.dumps(value)
        forms = (value, quoted, f"[{value}]", f"[{quoted}]", "{ a = 1 }", many)
        lines[place] = f"{key}= {draw.choice(forms)}"
    elif change < 0.75:
        del lines[place]
    elif change < 0.85:
        lines.insert(draw.randrange(len(lines)), lines[place])
    else:
        return _changed_bytes(draw, text.encode())
    return "\n".join(lines).encode(errors="surrogatepass")


def _changed_bytes(draw: random.Random, content: bytes) -> bytes:
    """Bytes of which some are changed, cut off or repeated."""
    if not content:
        return bytes(draw.randrange(256) for _ in range(16))
    change, place = draw.random(), draw.randrange(len(content))
    if change < 0.15:
        return content[:place]
    if change < 0.25:
        return content[:place] + content[place : place + 1000] * 3 + content[place:]
    if change < 0.35:
        return content[:place] + content[min(len(content), place + draw.randint(1, 64)) :]
    changed = bytearray(content)
    near = draw.random() < 0.5  # headers are where the fields are
    for _ in range(draw.choice((1, 1, 4, 64))):
        where = draw.randrange(min(512, len(changed)) if near else len(changed))
        changed[where] = draw.choice((0, 255, 127, draw.randrange(256)))
    return bytes(changed)


def _changed_tree(draw: random.Random, tree: Any) -> Any:
    """A tree of JSON in which a few values or entries are changed."""
    for _ in range(draw.choice((1, 1, 1, 3))):
        spots = [*_spots(tree)]
        parent, key = draw.choice(spots)
        change = draw.random()
        if change < 0.15 and isinstance(parent, dict):
            del parent[key]
        elif change < 0.25 and isinstance(parent, list):
            parent.append(parent[key])
        else:
            parent[key] = draw.choice(
                (None, True, -1, 0, 10**30, 1e308, float("nan"), float("-inf"), "", [], {}, [[]],
                 "=1+1", "<script>alert(1)</script>", "\x1b[2J", "\\input{x}", "a" * 10_000,
                 draw.choice(TEXTS).replace("\ud800", "?"))
            )  # fmt: skip
    return tree


def _spots(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in items:
        yield tree, key
        yield from _spots(value)


def _changed_tensors(
    draw: random.Random, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    name = draw.choice(sorted(tensors))
    tensor = tensors[name]
    forms = [
        tensor.flatten(), torch.zeros(()), tensor[:0] if tensor.dim() else tensor, tensor.double(),
        tensor.to(torch.int8), torch.full_like(tensor, 100), tensor.bool(), tensor.half(),
        torch.full_like(tensor.float(), float("nan")), tensor.unsqueeze(0), torch.zeros(0, 3),
    ]  # fmt: skip
    changed = {**tensors, name: draw.choice(forms)}
    if draw.random() < 0.2:
        del changed[name]
    return changed


def _change_record(draw: random.Random, path: Path) -> None:
    """Change tensors or the record of a file of ours, with a checksum that is right again."""
    tensors, record = read_record(path)
    if draw.random() < 0.4:
        tensors = _changed_tensors(draw, tensors)
    else:
        record = _changed_tree(draw, record)
    write_record(path, tensors, record)


def attempt(family: str, number: int, seed: int, made: Materials) -> Outcome:
    """One mutation, which depends on its family, its number and the seed alone."""
    draw = random.Random(f"{seed} {family} {number}")
    with tempfile.TemporaryDirectory(dir=made.place, ignore_cleanup_errors=True) as place:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAIT_SECONDS)
        try:
            FAMILIES[family][1](draw, made, Path(place))
        except NpprError as error:
            text = str(error)
            if "memory" in text and ("ran out" in text or "allocate" in text):
                return Outcome(family, "memory", text[:300])
            odd = "\n" in text.strip() or len(text) > 20_000
            return Outcome(family, "several lines" if odd else "refused", text[:300])
        except Hang:
            trace, whole = _trace(), traceback.format_exc()
            at_work = any(
                place in whole
                for place in (
                    "measurement.py",
                    "fitting.py",
                    "splitting.py",
                    "prepare_classifier.py",
                )
            )
            kind = "at work" if at_work else "hang"
            return Outcome(family, kind, f"{_latest} {trace}")
        except MemoryError:
            return Outcome(family, "memory", _trace())
        except BaseException:
            return Outcome(
                family, "traceback", f"{_latest if family == 'options' else ''} {_trace()}"
            )
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
    return Outcome(family, "ok")


def _trace() -> str:
    return " | ".join(traceback.format_exc(limit=-12).splitlines()[1:])[-1500:]


def run_batch(cases: Sequence[tuple[str, int]], seed: int, made: Materials) -> list[Outcome]:
    """The outcomes of some mutations, in a process of their own; one that dies costs one mutation."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _limit()
        with os.fdopen(writing, "w") as pipe:
            for family, number in cases:
                pipe.write(json.dumps(vars(attempt(family, number, seed, made))) + "\n")
                pipe.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = [Outcome(**json.loads(line)) for line in lines]
    _, status = os.waitpid(child, 0)
    if len(found) < len(cases):
        family, number = cases[len(found)]
        found.append(Outcome(family, "died", f"number {number}, status {status}"))
        found += run_batch(cases[len(found) :], seed, made) if len(found) < len(cases) else []
    return found


def _limit() -> None:
    """Give this process some memory above what it has, and alarms."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def stop(*_: object) -> None:
        raise Hang

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, stop)


def run_campaign(
    mutations: int, seed: int, made: Materials, families: Sequence[str] = tuple(FAMILIES)
) -> Iterator[tuple[tuple[str, int], Outcome]]:
    """All mutations, spread over the families by their weights."""
    wheel = [name for name in families for _ in range(FAMILIES[name][0])]
    random.Random(seed).shuffle(wheel)
    cases = [*itertools.islice(zip(itertools.cycle(wheel), itertools.count()), mutations)]
    for start in range(0, len(cases), BATCH):
        some = cases[start : start + BATCH]
        yield from zip(some, run_batch(some, seed, made), strict=True)


def main() -> int:
    """Run the campaign and print its counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=list(FAMILIES), help="one family only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [options.family] if options.family else list(FAMILIES)
    counts = Counter[tuple[str, str]]()
    faults: dict[str, str] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        made = Materials(Path(place))
        for (family, number), outcome in run_campaign(
            options.mutations, options.seed, made, chosen
        ):
            counts[family, outcome.kind] += 1
            if outcome.kind not in SOUND:
                key = f"{outcome.kind} {outcome.what[-160:]}"
                if key not in faults:
                    print(f"FAULT {family} {number} {outcome.kind}: {outcome.what}", flush=True)
                faults.setdefault(key, outcome.what)
            done = sum(counts.values())
            if done % 500 == 0:
                print(f"{done} mutations, {time.perf_counter() - began:.0f} s", flush=True)
    for (family, kind), count in sorted(counts.items()):
        print(f"{count:6d} {family}: {kind}")
    bad = sum(count for (_, kind), count in counts.items() if kind not in SOUND)
    seconds = time.perf_counter() - began
    print(f"{sum(counts.values())} mutations in {seconds:.0f} s: {bad} faults, {len(faults)} kinds")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
