"""Kill runs at random moments and at every file operation; after a resume nothing may differ.

    python benchmarks/kill_campaign.py --kills 1000 --faults 200 --seed 0

Each work (assess, the rung per-input, fit, train, study, gate) is done once without an interruption.
Then it is killed (SIGKILL) again and again: just before its n-th file operation, for every n; in the
middle of writing its n-th file; and after a random time. It is resumed, every third time killed once
more on the way, and finished. Its results must be those of the first time but for clock times, no draw
may be measured twice but those of the block under way, and no half-written file may be left.

Then other faults: the disk becomes full or read-only at the n-th write, the folder is removed before
the n-th operation, SIGTERM comes after a random time, two processes begin at once in one folder. Each
must end with one line and exit code 2 (143 after SIGTERM), and a resume must give the same results.

A process that takes 10 minutes of processor time, or an hour of the clock, hangs, which is a fault.

A parent that has loaded PyTorch forks the processes, so a kill takes less than a second. Block and
state files are written at every opportunity, not on a timer.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import io
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sklearn.datasets  # noqa: F401  loaded once, before forking
import torch
import torch._dynamo  # optimisers load it

import nppr.gate.gate
import nppr.measuring.blocks
import nppr.measuring.measurement
import nppr.search.fitting
import nppr.study.node_work
import nppr.study.run_study
import nppr.train.training_loop
from nppr.cli import INTERRUPTED, TERMINATED, run
from nppr.system.process import terminate_like_ctrl_c

SECONDS, WAIT_SECONDS = 600, 3600
"""Of the processor and of the clock, after which a process hangs: a busy machine makes no fault."""

TIMINGS = {"timing", "environment", "seconds", "machine", "nodes", "time"}
"""Entries of reports and records that a clock or a machine decides."""

STUDY = """
name = "tiny"
[[data]]
name = "digits"
spec = "digits"
fit_inputs = 96
select_inputs = 40
inputs = 40
[[classifiers]]
name = "digits-cnn"
model = "digits-cnn"
training = { epochs = 2 }
[fit]
calls = 768
[measure]
draws = 32
[[grids]]
fit_radii = ["0.15"]
dependencies = ["label"]
sources = ["uniform", "pgd-3"]
[[tables]]
name = "main"
rows = ["classifier"]
columns = [
    { header = "NPPR", where = { source = "nppr" } },
    { header = "PR", where = { source = "uniform" } },
]
"""
POLICY = """
inputs = 40
fit_inputs = 64
select_inputs = 40
draws = 16
fit_calls = 512
batch_size = 64
calls = 4000
require = ["PR uniform >= 0.5", "NPPR independent >= 0.05", "grade >= C"]
"""


@dataclass(frozen=True)
class Work:
    """A command that is killed: its arguments in a folder, and how it is continued."""

    name: str
    arguments: Callable[[Path], Sequence[str]]
    again: tuple[str, ...] = ("--resume",)
    results: tuple[str, ...] = ()
    """What must be the same, as patterns below the folder."""


SMALL = shlex.split("--inputs 40 --batch-size 64 --quiet")
SEARCH = shlex.split("--fit-inputs 64 --select-inputs 20 --fit-calls 512")
RUN = ("out/report.json", "out/per_input.csv", "out/evidence.safetensors")
NOISE = ("out/distributions/*",)


def _assess(folder: Path) -> list[str]:
    sources = "uniform,gaussian:scale=0.5,pgd:steps=3"
    chosen = ["--sources", sources, "--draws", "40", "--radii", "0.05", "--no-page"]
    return ["assess", *SMALL, *chosen, "--out", str(folder / "out")]


def _per_input(folder: Path) -> list[str]:
    chosen = shlex.split(
        "--sources nppr,uniform --floor 0 --draws 32 --per-input-calls 5 --no-page"
    )
    return ["assess", *SMALL, *SEARCH, *chosen, "--out", str(folder / "out")]


def _fit(folder: Path) -> list[str]:
    chosen = shlex.split("--batch-size 64 --quiet --dependency label --floor 0,0.5")
    return ["fit", *SEARCH, *chosen, "--out", str(folder / "out")]


def _train(folder: Path) -> list[str]:
    chosen = shlex.split(
        "digits-cnn --epochs 3 --fit-inputs 100 --select-inputs 20 --inputs 40 --quiet"
    )
    return ["train", *chosen, "--out", str(folder / "w.safetensors")]


def _study(folder: Path) -> list[str]:
    places = ["--cache", str(folder / "cache"), "--out", str(folder / "out")]
    return ["study", str(_text(folder, "study.toml", STUDY)), *places, "--quiet"]


def _gate(folder: Path) -> list[str]:
    places = ["--junit", str(folder / "gate.xml"), "--out", str(folder / "out")]
    return ["gate", str(_text(folder, "policy.toml", POLICY)), *places, "--quiet"]


def _text(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


WORKS = (
    Work("assess", _assess, results=RUN),
    Work("per-input", _per_input, results=(*RUN, *NOISE)),
    Work("fit", _fit, results=NOISE),
    Work("train", _train, results=("w.safetensors", "w.json")),
    Work("study", _study, again=(), results=("out/main.*", "out/study.json")),
    Work("gate", _gate, again=(), results=("gate.xml", *RUN, *NOISE)),
)


@dataclass(frozen=True)
class Kill:
    """When a process is killed: before an operation, in the middle of a write, or after a time.

    Or what befalls it: `full` and `read_only` name the write from which on the disk takes nothing,
    `vanish` the operation before which its folder is removed, `term` the time when SIGTERM comes.
    """

    before: int | None = None
    within: int | None = None
    after: float | None = None
    full: int | None = None
    read_only: int | None = None
    vanish: int | None = None
    term: float | None = None

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {value}" for name, value in vars(self).items() if value is not None
        )


@dataclass
class Seen:
    """What a process did before it ended: its exit code, None if it was killed, and its journal."""

    code: int | None
    output: str
    seconds: float
    operations: int
    writes: int
    steps: list[str]


def start(work: Work, folder: Path, kill: Kill | None = None, *, again: bool = False) -> Seen:
    """Do a work in a forked process, and kill it if so asked."""
    began = time.perf_counter()
    child, journal = begin(work, folder, kill or Kill(), again=again)
    for number, wait in (
        (signal.SIGKILL, kill and kill.after),
        (signal.SIGTERM, kill and kill.term),
    ):
        if wait:
            time.sleep(wait)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
    return end(child, journal, began)


def begin(
    work: Work, folder: Path, kill: Kill, *, again: bool = False, name: str = ""
) -> tuple[int, Path]:
    """Fork the process of a work: its number, and its journal beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [*work.arguments(folder), *(work.again if again else ())]
    journal = folder.with_name(f"{folder.name}{name}.journal")
    journal.unlink(missing_ok=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the child can take it
    child = os.fork()
    if child == 0:
        _run_child(arguments, folder, journal, kill)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return child, journal


def end(child: int, journal: Path, began: float) -> Seen:
    """Wait for the process of a work, and read its journal."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    lines = journal.read_text().splitlines() if journal.exists() else []
    kinds = Counter(line.split(" ", 1)[0] for line in lines)
    return Seen(
        code=None if code == -signal.SIGKILL else code,
        output="\n".join(line[4:] for line in lines if line.startswith("out ")),
        seconds=seconds,
        operations=kinds["op"],
        writes=kinds["write"],
        steps=[line for line in lines if line.startswith("step ")],
    )


def _run_child(arguments: Sequence[str], folder: Path, journal: Path, kill: Kill) -> None:
    """Run the command line with a journal of file operations and finished pieces; never returns."""
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    counts = Counter[str]()
    text = io.StringIO()

    def note(kind: str, what: object) -> None:
        counts[kind] += 1
        os.write(file, f"{kind} {what}\n".encode())

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, given: tuple[Any, ...]) -> None:
        """Count operations that change a file of the work; audit events come before the operation."""
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        changes = event != "open" or bool(given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if not changes or not str(given[0]).startswith(str(folder) + os.sep):
            return
        note("op", f"{event} {Path(str(given[0])).name}")
        if counts["op"] == kill.before:
            die()
        if counts["op"] == kill.vanish:
            for each in ("out", "cache"):
                shutil.rmtree(folder / each, ignore_errors=True)

    _journal_steps(note)
    _tear_writes(note, lambda: _fault_of(kill, counts["write"]), die)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 60))
    signal.alarm(WAIT_SECONDS)
    terminated = terminate_like_ctrl_c()
    _save_always()
    # Nobody cuts the power: what was written outlives its process.
    os.fsync = lambda _: None  # type: ignore[assignment]
    sys.addaudithook(watch)
    code = 99
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            from nppr.cli import console

            console.out.file = console.err.file = text
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            code = run(arguments)
            code = TERMINATED if code == INTERRUPTED and terminated() else code
    except KeyboardInterrupt:  # before the command began
        code = TERMINATED
    except BaseException as error:
        text.write(f"Traceback {type(error).__name__}: {error}")
    for line in text.getvalue().splitlines():
        os.write(file, f"out {line}\n".encode())
    os._exit(code)


def _journal_steps(note: Callable[[str, object], None]) -> None:
    """Note every draw that is measured and every step that is taken, once it is done."""
    commit, step = nppr.measuring.measurement._commit, nppr.search.fitting._take_step
    update = nppr.train.training_loop._Training._update

    def committed(job: Any, blocks: Any, done: Any) -> None:
        commit(job, blocks, done)
        budget = job.source.budget
        which = f"{job.source.name}@{budget.radius if budget else ''} {job.split.kind.name}"
        for position in done.positions.tolist():
            note("step", f"{which} input {position} block {done.block}")

    def stepped(fitting: Any, state: Any, *rest: Any) -> Any:
        number = state.number
        found = step(fitting, state, *rest)
        note("step", f"fit {fitting.stage} {fitting.seed} {number}")
        return found

    def updated(self: Any, *rest: Any) -> Any:
        found = update(self, *rest)
        note("step", f"train {self.standing.epoch} {self.standing.step}")
        return found

    nppr.measuring.measurement._commit = committed
    nppr.search.fitting._take_step = stepped  # type: ignore[assignment]
    nppr.train.training_loop._Training._update = updated  # type: ignore[assignment,method-assign]


def _fault_of(kill: Kill, write: int) -> int | None:
    """What happens to this write: an error of the system, 0 for an end in its middle, or nothing."""
    if kill.full and write >= kill.full:
        return errno.ENOSPC
    if kill.read_only and write >= kill.read_only:
        return errno.EROFS
    return 0 if write == kill.within else None


def _tear_writes(
    note: Callable[[str, object], None], fault: Callable[[], int | None], die: Callable[[], None]
) -> None:
    """Count whole files that are written; let a write fail, or end in its middle."""
    opened = Path.open

    def open_(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        file = opened(self, mode, *rest, **named)
        if mode != "xb":
            return file
        write = file.write
        note("write", self.name)

        class Torn:
            def __enter__(self) -> Torn:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, content: bytes) -> None:
                found = fault()
                write(content if found is None else content[: len(content) // 2])
                if found == 0:
                    file.flush()
                    die()
                if found:
                    raise OSError(found, os.strerror(found))

            flush, fileno = file.flush, file.fileno

        return Torn()

    Path.open = open_  # type: ignore[method-assign]


def _save_always() -> None:
    """Let files of blocks and states be written at every opportunity instead of on a timer."""
    for kind in (nppr.measuring.blocks.FileStore, nppr.search.fitting.StateFile):
        made = kind.__init__

        def init(self: Any, *given: Any, made: Any = made, **named: Any) -> None:
            made(self, *given, **named)
            self.seconds = 0.0

        kind.__init__ = init  # type: ignore[method-assign]


def results(work: Work, folder: Path) -> dict[str, object]:
    """What a finished work has found, without clock times, by the name of the file."""
    found: dict[str, object] = {}
    for pattern in work.results:
        for path in sorted(folder.glob(pattern)):
            name = str(path.relative_to(folder))
            content = path.read_bytes()
            if path.suffix == ".json":
                found[name] = _without_clock(json.loads(content))
            elif path.suffix == ".xml":
                found[name] = content.split(b"<testcase")[1:]
            else:
                found[name] = hashlib.sha256(content).hexdigest()
    return found


def _without_clock(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _without_clock(each) for name, each in tree.items() if name not in TIMINGS}
    return [_without_clock(each) for each in tree] if isinstance(tree, list) else tree


@dataclass
class Campaign:
    """The works as they come out uninterrupted, and what went wrong in all kills so far."""

    place: Path
    works: Sequence[Work] = WORKS
    seed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.true: dict[str, dict[str, object]] = {}
        self.first: dict[str, Seen] = {}
        for work in self.works:
            folder = self.place / f"{work.name}-true"
            seen = self.first[work.name] = start(work, folder)
            if seen.code not in (0, 3):  # 3: a gate is undecided
                raise SystemExit(f"{work.name} failed: {seen.output}")
            self.true[work.name] = results(work, folder)
            assert len(self.true[work.name]) >= len(work.results), work.name

    def run(self, kills: int) -> None:
        """Kill so many times: at every operation and write of every work, then at random times."""
        plan = [
            (work, kill)
            for work in self.works
            for kill in [
                *(Kill(before=n + 1) for n in range(self.first[work.name].operations)),
                *(Kill(within=n + 1) for n in range(self.first[work.name].writes)),
            ]
        ]
        self.draw.shuffle(plan)
        number = 0
        while sum(self.kills.values()) < kills:
            work, kill = plan.pop() if plan else (self.draw.choice(self.works), self._any_time())
            if kill.after is not None:
                kill = Kill(after=kill.after * self.first[work.name].seconds)
            self.round(work, kill, number)
            number += 1
            if number % 50 == 0:
                print(f"{sum(self.kills.values())} kills, {len(self.faults)} faults", flush=True)

    def run_faults(self, faults: int) -> None:
        """Let so many other faults happen, of every kind in turn."""
        for number in range(faults):
            work = self.draw.choice(self.works)
            first = self.first[work.name]
            write, operation = (self.draw.randint(1, n) for n in (first.writes, first.operations))
            kinds = (
                Kill(full=write), Kill(read_only=write), Kill(vanish=operation),
                Kill(term=self.draw.random() * first.seconds), None,
            )  # fmt: skip
            kill, folder = kinds[number % len(kinds)], self.place / f"{work.name}-f{number}"
            if kill is None:
                self._two_at_once(work, folder)
            else:
                self._befallen(work, folder, kill)
            _remove(folder)

    def _befallen(self, work: Work, folder: Path, kill: Kill) -> None:
        """A work that cannot go on ends with one line, and can be continued."""
        seen = start(work, folder, kill)
        kind = str(kill).split()[0]
        self.kills[f"{work.name}, {kind}"] += 1
        ended = self.first[work.name].code
        # The page, or a folder that vanished after all was written, costs nothing; a study whose cache
        # has vanished has failed nodes.
        allowed = {TERMINATED, ended} if kill.term else {2, ended} if kill.vanish else {2}
        allowed |= {1} if kill.vanish and work.name == "study" else set()
        most = 10 if work.name == "study" else 2  # every node that failed has a line
        if (
            seen.code not in allowed
            or len(seen.output.splitlines()) > most
            or "Trace" in seen.output
        ):
            self._fault(f"{work.name} {kill}: code {seen.code}: {seen.output[-400:]}")
        last = start(work, folder, again=True)
        self._judge(work, folder, last, [], f"{work.name} {kill}")

    def _two_at_once(self, work: Work, folder: Path) -> None:
        """Of two processes in one folder one is refused, or waits, or comes after the other."""
        began = time.perf_counter()
        both = [begin(work, folder, Kill(), again=True, name=f"-{n}") for n in range(2)]
        seen = [end(*each, began) for each in both]
        self.kills[f"{work.name}, two at once"] += 1
        codes = sorted(each.code if each.code is not None else -1 for each in seen)
        ended = self.first[work.name].code
        if codes not in ([ended, ended], sorted([ended or 0, 2])) or any(
            each.code == 2 and len(each.output.splitlines()) != 1 for each in seen
        ):
            self._fault(f"{work.name}, two at once: {[(e.code, e.output[-300:]) for e in seen]}")
        self._judge(work, folder, start(work, folder, again=True), [], f"{work.name}, two at once")

    def _any_time(self) -> Kill:
        return Kill(after=self.draw.random())

    def round(self, work: Work, kill: Kill, number: int) -> None:
        """Kill a work, perhaps once more while it is continued, finish it, and look at it."""
        folder = self.place / f"{work.name}-{number}"
        steps = self._killed(work, folder, kill, again=False)
        if number % 3 == 0:
            steps += self._killed(work, folder, self._second(work), again=True)
        last = start(work, folder, again=True)
        self._judge(work, folder, last, [*steps, last.steps], f"{work.name} {kill}")
        if not any(fault.startswith(f"{work.name} {kill}") for fault in self.faults):
            _remove(folder)

    def _fault(self, what: str) -> None:
        self.faults.append(what)
        print("FAULT", what, flush=True)

    def _second(self, work: Work) -> Kill:
        return Kill(before=self.draw.randint(1, self.first[work.name].operations))

    def _killed(self, work: Work, folder: Path, kill: Kill, *, again: bool) -> list[list[str]]:
        seen = start(work, folder, kill, again=again)
        if seen.code is None:
            kind = "operation" if kill.before else "write" if kill.within else "random time"
            self.kills[f"{work.name}, {kind}"] += 1
        elif seen.code != self.first[work.name].code:
            self._fault(f"{work.name} {kill}: code {seen.code} {seen.output[-300:]}")
        return [seen.steps]

    def _judge(
        self, work: Work, folder: Path, last: Seen, steps: list[list[str]], name: str
    ) -> None:
        if last.code != self.first[work.name].code:
            self._fault(f"{name}: resumed with code {last.code}: {last.output[-300:]}")
            return
        found, true = results(work, folder), self.true[work.name]
        for file in sorted({*found, *true}):
            if found.get(file) != true.get(file):
                self._fault(f"{name}: another {file} in {folder}")
        # A single file that a command was asked for may leave one; a folder of ours does not.
        left = [str(path) for path in folder.rglob("*.partial") if path.parent != folder]
        if left:
            self._fault(f"{name}: left {left[0]}")
        if steps and (work.again or work.name == "study"):
            self._judge_steps(work, name, steps)

    def _judge_steps(self, work: Work, name: str, steps: list[list[str]]) -> None:
        """Nothing is done twice but what was under way: the last block, or the last step.

        Candidates of the stage under way are compared again, on the select split; so are features.
        """
        done = Counter(itertools.chain.from_iterable(steps))
        under_way = {
            line for before in steps[:-1] for line in before if _piece(line) == _piece(before[-1])
        }
        more = [
            line
            for line, count in (done - Counter(self.first[work.name].steps)).items()
            if line not in under_way and not _may_be_repeated(line)
        ]
        if more:
            self._fault(f"{name}: {len(more)} done twice, such as {more[0]}")


def _may_be_repeated(line: str) -> bool:
    """Whether this is a part of a larger piece that is kept as a whole only."""
    return " select input " in line or " clean@" in line or line.startswith("step train")


def _piece(line: str) -> str:
    """Which piece of work a line of the journal belongs to: a block of a source, a step of a fit."""
    words = line.split()
    return f"{words[1]} {words[-1]}" if "block" in words else line


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name(folder.name + ".journal").unlink(missing_ok=True)


def main() -> int:
    """Run the campaign and print its counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="one work only", choices=[work.name for work in WORKS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [work for work in WORKS if options.work in (None, work.name)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        began = time.perf_counter()
        campaign = Campaign(Path(place), chosen, options.seed)
        for name, seen in campaign.first.items():
            print(
                f"{name}: {seen.operations} operations, {seen.writes} writes, {seen.seconds:.1f} s"
            )
        campaign.run(options.kills)
        campaign.run_faults(options.faults)
        for name, count in sorted(campaign.kills.items()):
            print(f"{count:5d} {name}")
        seconds = time.perf_counter() - began
        print(
            f"{sum(campaign.kills.values())} in {seconds:.0f} s: {len(campaign.faults)} went wrong"
        )
    return bool(campaign.faults)


if __name__ == "__main__":
    sys.exit(main())
