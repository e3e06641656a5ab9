"""Classes are numbered as the outputs of the classifier if that is clear; the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nppr
from data import layouts
from nppr.data import fit_classes, from_arrays, load_data, with_class_order
from nppr.errors import DataError, SpecError

GREY = np.arange(10 * 8 * 8, dtype=np.uint8).reshape(10, 8, 8)
BINARY = np.arange(10) % 2


def test_labels_from_1_are_shifted_where_the_outputs_show_it() -> None:
    data = from_arrays(torch.rand(30, 1, 2, 2), np.arange(30) % 3 + 1)
    moved = fit_classes(data, 3)
    assert layouts.undivided(moved)[1].tolist() == [0, 1, 2] * 10
    assert moved.classes == 3
    assert "1..3 taken as the classifier's outputs 0..2" in moved.notes[0]
    assert fit_classes(data, 4) is data, "class 0 does not occur"


def test_a_subset_of_classes_keeps_its_numbers() -> None:
    data = from_arrays(torch.rand(20, 1, 2, 2), np.tile([2, 7], 10))
    subset = fit_classes(data, 10)
    assert subset.classes == 10
    assert layouts.undivided(subset)[1].tolist() == [2, 7] * 10
    assert "a subset of the classifier's 10 classes" in subset.notes[0]


@pytest.mark.parametrize(
    ("labels", "outputs", "message"),
    [
        (np.tile([0, 5], 10), 3, r"0\.\.2, got 0\.\.5"),
        (["a", "b"] * 10, 3, "3 classes of the classifier, got 2 that are named a, b.*class-order"),
        (["a", "b", "c", "d"] * 5, 3, "got 4 that are named a, b, c, d.*class-order"),
    ],
)
def test_labels_that_could_mean_anything_are_refused(
    labels: Any, outputs: int, message: str
) -> None:
    data = from_arrays(torch.rand(20, 1, 2, 2), labels)
    with pytest.raises(DataError, match=message):
        fit_classes(data, outputs)


@pytest.mark.parametrize("form", ["list", "mapping", "text", "json"])
def test_classes_take_the_order_that_is_given(form: str, tmp_path: Path) -> None:
    order = ["dog", "bird", "cat"]
    places = {"cat": 2, "dog": 0, "bird": 1}
    (tmp_path / "order.txt").write_text("\n".join(order) + "\n\n")
    (tmp_path / "order.json").write_text(json.dumps(places))
    given: Any = {
        "list": order, "mapping": places, "text": tmp_path / "order.txt",
        "json": str(tmp_path / "order.json"),
    }[form]  # fmt: skip
    data = with_class_order(from_arrays(torch.rand(10, 1, 2, 2), ["dog", "cat"] * 5), given)
    assert data.class_names == ("dog", "bird", "cat")
    assert layouts.undivided(data)[1].tolist() == [0, 2] * 5
    assert data.notes == ("classes: in the order given, dog = 0, bird = 1, cat = 2",)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["dog", "bird"], "'cat' is not among its 2"),
        (["dog", "cat", "dog"], "'dog' twice"),
        (["dog"], "at least 2 classes"),
        ({"dog": 0, "cat": 0}, "a different output"),
        ({"dog": 0, "cat": "1"}, "a different output"),
        ({"dog": 0, "cat": -1}, "a different output"),
        (["dog", 3], "not text"),
        ("none.txt", "readable text file, got 'none.txt'"),
    ],
)
def test_a_wrong_order_is_named(order: Any, message: str) -> None:
    data = from_arrays(torch.rand(10, 1, 2, 2), ["dog", "cat"] * 5)
    with pytest.raises((DataError, SpecError), match=message):
        with_class_order(data, order)


@pytest.mark.parametrize("text", ["{", '"dog"', "[" * 100_000])
def test_a_broken_order_in_json_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    data = from_arrays(torch.rand(10, 1, 2, 2), BINARY)
    with pytest.raises(SpecError, match="`class-order` must be"):
        with_class_order(data, tmp_path / "a.json")


@pytest.mark.slow
def test_a_run_says_what_was_converted() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    images = np.stack([GREY] * 3, -1)
    report = nppr.assess(
        model,
        (images, ["b", "a"] * 5),
        budget=nppr.Budget.linf(0.1),
        sources="uniform",
        class_order={"b": 0, "a": 1},
        measure=nppr.Measure(draws=2, evaluate_all=True),
    )
    assert report.data.class_names == ("b", "a")
    for note in report.data.notes:
        assert f"data: {note}" in report.table(200)
        assert note in report.to_html()
    assert len(report.data.notes) == 3


@pytest.mark.slow
def test_a_subset_of_the_classes_of_a_classifier_can_be_assessed() -> None:
    digits = load_data("digits")
    images, labels = layouts.undivided(digits)
    kept = labels >= 8
    report = nppr.assess(
        "digits-cnn",
        (images[kept], labels[kept]),
        budget=nppr.Budget.linf(0.05),
        sources="uniform",
        measure=nppr.Measure(draws=2),
    )
    shifted = nppr.assess(
        "digits-cnn",
        (images, labels + 1),
        budget=nppr.Budget.linf(0.05),
        sources="uniform",
        measure=nppr.Measure(draws=2, inputs=50),
    )
    for each in (report, shifted):
        assert each.data.classes == 10
        assert each.numbers[0].value is not None
        assert each.numbers[0].value > 0.9
