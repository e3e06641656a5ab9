"""Several real processes that run a function of this file together, as torchrun would start them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from helpers import Stray, evaluate_part, half_classifier, two_class_data
from nppr.assessment.assess import learn
from nppr.blocks import FileStore
from nppr.budget import Budget
from nppr.classifiers import Classifier, prepare
from nppr.cli import run
from nppr.data import from_arrays, load_data
from nppr.errors import NpprError
from nppr.measurement import measure, probe
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.random_draws import DrawBlock
from nppr.ranks import (
    LostRank,
    first,
    gathered,
    joined,
    ranks,
    require_same,
    share,
    span,
    together,
    world,
)
from nppr.search import SearchSettings
from nppr.sources import Clean, Gaussian, Universal
from nppr.sources.learned import Learned
from nppr.sources.per_input_noise import PerInput
from nppr.tally import FrozenModel

LOST = 77
"""Exit code of a rank that has noticed that another one ended."""

SECONDS = 200.0
"""Until a rank that has not ended counts as stuck: less than ranks wait for each other."""

Work = Callable[..., Any]


@dataclass(frozen=True)
class Ended:
    """How the processes ended: exit codes, results and what they wrote to standard error, by rank."""

    codes: list[int | None]
    results: list[Any]
    out: list[str]
    err: list[str]


def run_ranks(size: int, folder: Path, work: Work, *arguments: Any) -> Ended:
    """Run a function on some ranks, each in a folder of its own, with one thread each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nppr.assessment.assess", "sklearn.datasets"])  # once for all
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = [folder / f"rank{rank}-of-{size}" for rank in range(size)]
    processes = []
    for rank, place in enumerate(places):
        place.mkdir(parents=True, exist_ok=True)
        given = (rank, size, port, place, work, arguments)
        processes.append(context.Process(target=_rank, args=given))
        processes[-1].start()
    for process in processes:
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
    read = [place / "result.json" for place in places]
    return Ended(
        [process.exitcode for process in processes],
        [json.loads(path.read_text()) if path.exists() else None for path in read],
        [(place / "out").read_text() for place in places],
        [(place / "err").read_text() for place in places],
    )


def _rank(
    rank: int, size: int, port: int, place: Path, work: Work, arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    os.chdir(place)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"})
    torch.set_num_threads(1)
    try:
        with ranks():
            result = work(*arguments)
        (place / "result.json").write_text(json.dumps(result))
    except LostRank:
        os._exit(LOST)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def exchanges() -> dict[str, Any]:
    """Every kind of exchange, once."""
    rank, size = world().rank, world().size
    place = torch.get_default_device()
    pieces = [torch.full((rank, 2), float(rank)), torch.full((1, 2), -1.0)] if rank else []
    found: dict[str, Any] = {
        "gathered": gathered({"rank": rank}),
        "joined": joined(pieces, place).tolist(),
        "first": first(lambda: f"only {world().rank}"),
        "share": share([5, 1, 1, 1, 1, 5, 1]),
        "span": list(span(7)),
    }

    class Unknown(Exception):
        """An error that cannot travel."""

    errors: dict[str, Callable[[], Exception]] = {
        "one": lambda: ValueError(f"from {rank}"),
        "unknown": lambda: Unknown("strange"),
    }
    for name, make in errors.items():
        try:
            with together():
                if rank == size - 1:
                    raise make()
                gathered("waiting")
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]
    try:
        first(lambda: 1 // 0)
    except ZeroDivisionError as error:
        found["in first"] = str(error)
    try:
        require_same({"versions": {"nppr": 1, "torch": 2 if rank < size - 1 else 3}})
    except NpprError as error:
        found["different"] = str(error)
    found["still together"] = gathered(rank)
    return found


def commands(lines: list[list[str]]) -> list[int]:
    """Run commands one after another; their exit codes."""
    return [run(line) for line in lines]


class Fragile(Stray):
    """Noise that fails on one input."""

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        if 3 in draws.indices:
            raise OSError("input 3 cannot be had")
        return super().perturb(model, x, y, draws)


class Watched(nn.Module):
    """Counts its images, or only those whose gradient is wanted; ends its process after a number."""

    def __init__(
        self, model: nn.Module, *, gradients: bool = False, kill_after: int | None = None
    ) -> None:
        super().__init__()
        self.model, self.gradients, self.kill_after = model, gradients, kill_after
        self.seen = 0

    def __deepcopy__(self, memory: Any) -> Watched:
        return self  # one counter for all forms

    def forward(self, x: Tensor) -> Tensor:
        """As the model."""
        if x.requires_grad or not self.gradients:
            self.seen += len(x)
        if self.kill_after is not None and self.seen > self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        logits: Tensor = self.model(x)
        return logits


def measuring(kept: str, inputs: int, kill_after: int | None = None) -> dict[str, Any]:
    """A measurement that keeps every block; the last rank is killed after so many images."""
    data = two_class_data(inputs)
    last = world().rank == world().size - 1
    ready = prepare(Classifier(half_classifier()), probe(data.evaluate), classes=2, micro_batch=4)
    model = Watched(half_classifier(), kill_after=kill_after if last else None)
    # Forms that are the model itself, so that all its images are counted.
    ready = type(ready)(**{**vars(ready), "fast": Classifier(model)})
    clean: dict[int, Tensor] = {}
    correct = np.ones(inputs, bool)
    store = FileStore(Path(kept), "test", seconds=0)
    tally = measure(
        Gaussian(Budget.linf(0.3)),
        ready,
        data.evaluate,
        draws=40,
        clean_correct=correct,
        store=store,
    )
    ready = prepare(
        load_digits_model(), probe(load_data("digits").evaluate), classes=10, micro_batch=4
    )
    part = load_data("digits").evaluate.limit(inputs, 0, "inputs")
    measure(Clean(), ready, part, clean_correct=correct, keep=clean)
    features = torch.stack([clean[index] for index in part.indices.tolist()])
    return {
        "correct": tally.correct.tolist(),
        "calls": tally.calls,
        "seen": model.seen,
        "features": features.double().sum(1).tolist(),
    }


def load_digits_model() -> Classifier:
    """The network of the demo."""
    from nppr.classifiers import load_classifier

    return load_classifier("digits-cnn")


def stray() -> list[str]:
    """A source that fails on one rank only, and a universal perturbation, fitted on all."""
    data = two_class_data(12)
    ready = prepare(Classifier(half_classifier()), probe(data.evaluate), classes=2, micro_batch=4)
    found = []
    try:
        measure(Fragile(None, 0.0), ready, data.evaluate, draws=4)
    except OSError as error:
        found.append(str(error))
    images = torch.rand(150, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    known = from_arrays(images, (images.mean((1, 2, 3)) > 0.5).long(), shares=(0.6, 0.1))
    source = Universal(Budget.linf(0.1)).fitted_on(Classifier(half_classifier()), known.fit)
    tally = measure(source, ready, known.evaluate)
    found.append(str(tally.correct.tolist()))
    found.append(source.delta.numpy().tobytes().hex())
    return found


def fitting(out: str, resume: bool, kill_after: int | None = None) -> int:
    """A fit of noise that sees the input; the last rank is killed after so many gradients."""
    last = world().rank == world().size - 1
    known = load_digits_model()
    assert known.module is not None
    model = Watched(known.module, gradients=True, kill_after=kill_after if last else None)
    family = Family(dependency=Dependency.INPUT, components=3, hidden_dim=16)
    learn(
        Classifier(model, mean=known.mean, std=known.std, name="watched"),
        "digits",
        search=SearchSettings(family=family, calls=2048, floors=(0.0,)),
        out=out,
        resume=resume,
        batch_size=16,
    )
    return model.seen


def per_input(path: str, inputs: int) -> dict[str, Any]:
    """A measurement of the rung per-input, and how many inputs this rank searched on."""
    network = torch.load(path, weights_only=False)
    images = torch.rand(inputs, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        split = evaluate_part(images, network(images).argmax(1))
    searched: list[int] = []

    class Counting(PerInput):
        def _search(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Any:
            searched.append(len(x))
            return super()._search(model, x, y, draws)

    torch.manual_seed(0)
    family = Family(Dependency.LABEL, components=2, floor=0.7)
    made = Distribution(family, (1, 4, 4), 2).eval()
    source = Counting(Learned(Budget.linf(0.1), made), calls=6)
    ready = prepare(Classifier(network), probe(split), classes=2, micro_batch=32)
    tally = measure(source, ready, split, draws=20)
    return {"correct": tally.correct.tolist(), "searched": sum(searched)}
