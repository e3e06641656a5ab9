"""Functions on numpy arrays and programs of one shape are models."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nppr
from helpers import grouped
from nppr.errors import ClassifierError
from nppr.models.formats.array_models import FixedInputModel
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import default_settings
from nppr.sources import Uniform

EXAMPLE = Path(__file__).parents[3] / "examples" / "http_model.py"
IMAGES = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def scores(images: Any) -> Any:
    """Two classes by the brightness of the left half."""
    left = images[..., :4].mean((1, 2, 3)) - images[..., 4:].mean((1, 2, 3))
    return np.stack([left, -left], 1)


def test_scores_and_labels_give_the_same_answers() -> None:
    by_scores = nppr.ArrayModel(scores, classes=2)
    by_labels = nppr.ArrayModel(lambda images: scores(images).argmax(1), classes=2)
    assert torch.equal(by_scores(IMAGES).argmax(1), by_labels(IMAGES).argmax(1))
    assert by_labels(IMAGES).sum(1).tolist() == [1.0] * 5


def test_batches_are_bounded() -> None:
    sizes: list[int] = []

    def counted(images: Any) -> Any:
        sizes.append(len(images))
        return scores(images)

    assert nppr.ArrayModel(counted, classes=2, batch=2)(IMAGES).shape == (5, 2)
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: scores(x)[:-1], r"must return scores of shape \(5, 2\) or 5 labels"),
        (lambda x: scores(x)[:, :1], r"must return scores of shape"),
        (lambda x: np.full(len(x), 2), "labels from 0 to 1, got"),
        (lambda x: np.full(len(x), 0.5), "labels from 0 to 1, got"),
        (lambda x: np.full((len(x), 2), "a"), "must return numbers"),
    ],
)
def test_wrong_answers_are_one_line(answer: Any, message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        nppr.ArrayModel(answer, classes=2)(IMAGES)


@pytest.mark.parametrize("wrong", [{"classes": 1}, {"classes": 2, "batch": 0}])
def test_wrong_numbers_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ClassifierError, match="must be a whole number"):
        nppr.ArrayModel(scores, **wrong)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("http_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PAUSES = (0.01,)  # type: ignore[attr-defined]
    return module


@pytest.fixture
def server(example: ModuleType) -> Iterator[ThreadingHTTPServer]:
    made = example.serve(0)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_the_example_counts_as_the_network_it_serves(
    example: ModuleType, server: ThreadingHTTPServer
) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    model = nppr.ArrayModel(lambda images: example.ask(url, images), classes=10)
    data, budget = nppr.load_data("digits").limit(inputs=40), nppr.Budget.linf(0.2)
    remote = nppr.measure(Uniform(budget), nppr.load_classifier(model), data.evaluate, draws=8,
                          classes=10)  # fmt: skip
    local = nppr.measure(
        Uniform(budget), nppr.load_classifier("digits-cnn"), data.evaluate, draws=8
    )
    assert np.array_equal(remote.correct, local.correct)
    x, y = data.evaluate.batch(np.arange(40))  # the clean tally again, by a loop written by hand
    answers = [int(example.ask(url, image[None].numpy()).argmax()) for image in x]
    assert (remote.clean_correct == (np.array(answers) == y.numpy())).all()


@pytest.mark.slow
def test_a_server_that_is_gone_stops_the_run_and_resume_ends_it_alike(
    example: ModuleType, server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    asked = 0
    limit: int | None = None

    def ask(images: Any) -> Any:
        nonlocal asked
        asked += 1
        if limit is not None and asked > limit:
            return example.ask("http://127.0.0.1:9", images)  # nobody answers there
        return example.ask(url, images)

    search = default_settings(Family(Dependency.LABEL), calls=3000).without_positions()

    def run(place: Path, **more: Any) -> nppr.Report:
        model = nppr.Classifier(nppr.ArrayModel(ask, classes=10), name="remote", fingerprint="1")
        return nppr.assess(
            model,
            "digits",
            budget=nppr.Budget.linf(0.2),
            sources="nppr,uniform,pgd",
            search=search,
            **grouped(
                inputs=20,
                fit_inputs=300,
                select_inputs=100,
                draws=16,
                batch_size=64,
                out=tmp_path / place,
                **more,
            ),
        )

    whole = run(Path("whole"))
    assert {rung.name for rung in whole.ladder} == {
        "nppr:independent",
        "nppr:label",
        "nppr:per-input",
    }
    assert any(flag.id == "by-scores" for flag in whole.flags)
    total, said = asked, list[str]()
    for part in (0.3, 0.5):
        asked, limit = 0, int(part * total)
        try:
            run(Path("parts"), resume=bool(said))
        except nppr.ModelUnavailableError as error:
            said.append(str(error))
    assert len(said) >= 2
    assert all("must answer at" in each for each in said)
    limit = None
    again = run(Path("parts"), resume=True)
    assert [row.value for row in again.numbers] == [row.value for row in whole.numbers]


@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [None, 1, 3, 10])
def test_every_batch_has_the_size_and_nothing_is_added(inputs: int, size: int | None) -> None:
    sizes: list[int] = []

    def run(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch * 2

    x = torch.arange(float(inputs)).view(-1, 1)
    assert torch.equal(FixedInputModel(run, (None,), size, fewest=size or 1)(x), x * 2)
    assert set(sizes) == {size or inputs}


@pytest.mark.parametrize(("inputs", "expected"), [(1, [2]), (3, [3]), (4, [4]), (9, [4, 4, 2])])
def test_limited_batches_run_as_they_come(inputs: int, expected: list[int]) -> None:
    sizes: list[int] = []

    def run(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch * 2

    x = torch.arange(float(inputs)).view(-1, 1)
    assert torch.equal(FixedInputModel(run, (None,), 4, fewest=2)(x), x * 2)
    assert sizes == expected
