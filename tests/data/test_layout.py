"""Inputs of any shape and range as images in [0, 1], and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

import nppr
from helpers import Linear
from nppr.cli.app import app
from nppr.core.budget import Budget
from nppr.data.layout import Layout, parse_range
from nppr.errors import DataError, InputError, SpecError

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(SHAPES, st.floats(-100, 100), st.floats(0.1, 100), st.booleans())
def test_there_and_back(shape: tuple[int, ...], low: float, width: float, own: bool) -> None:
    number = shape[0] if own else 1
    layout = Layout(shape, (low,) * number, (low + width,) * number)
    x = low + width * torch.rand(3, *shape, dtype=torch.float64)
    unit = layout.to_unit(x)
    assert unit.shape == (3, *layout.inner)
    assert bool(((unit >= -1e-6) & (unit <= 1 + 1e-6)).all())
    back = layout.from_unit(unit)
    assert back.shape == x.shape
    assert torch.allclose(back.double(), x, atol=1e-5 * max(1.0, abs(low) + width))


@pytest.mark.parametrize(
    ("given_range", "words"),
    [
        ("1", "a lower and a higher"),
        ("1,0", "a lower and a higher"),
        ("0,1;0", "a lower and a higher"),
        ("nan,1", "a lower and a higher"),
        ("0,inf", "a lower and a higher"),
        ((0.0, 1.0, 2.0), "a lower and a higher"),
        ("", "a lower and a higher"),
    ],
)
def test_a_range_that_is_none_is_refused(given_range: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_range(given_range)


def test_as_many_ranges_as_features() -> None:
    x, y = torch.rand(20, 3), torch.arange(20) % 2
    with pytest.raises(SpecError, match="one for each of 3 features, got 2"):
        nppr.from_arrays(x, y, input_range=([0, 0], [1, 1]))


def test_a_range_must_cover_the_data() -> None:
    x, y = torch.rand(20, 3), torch.arange(20) % 2
    x[4, 1] = 7.5
    with pytest.raises(DataError, match=r"feature 1 has values from .* to 7.5"):
        nppr.from_arrays(x, y, input_range=(0, 1))
    x[4, 1] = np.nan
    with pytest.raises(DataError, match="NaN"):
        nppr.from_arrays(x, y, input_range=(0, 1))


def test_without_a_range_the_message_names_it() -> None:
    with pytest.raises(DataError, match=r"input_range=\(-1, 1\)"):
        nppr.from_arrays(torch.rand(20, 3), torch.arange(20) % 2)


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with ranges [-5, 5] and [0, 100]; the class is that of `x0 / 10 + x1 / 100 - 0.5`."""
    x = torch.rand(400, 2, generator=torch.Generator().manual_seed(0))
    x = torch.stack([10 * x[:, 0] - 5, 100 * x[:, 1]], 1)
    return x, (x[:, 0] / 10 + x[:, 1] / 100 - 0.5 <= 0).long()


def test_a_radius_is_a_share_of_each_range() -> None:
    """A linear model's worst noise is known: every feature moves by the radius, against it."""
    x, y = table()
    model = Linear(torch.tensor([0.1, 0.01]), -0.5)
    report = nppr.assess(
        model,
        (x, y),
        input_range=((-5, 0), (5, 100)),
        budget=Budget.linf(0.1),
        sources="uniform,pgd",
        measure=nppr.Measure(draws=4),
    )
    margins = (x[:, 0] / 10 + x[:, 1] / 100 - 0.5).abs()
    data = nppr.from_arrays(x, y, input_range=((-5, 0), (5, 100)))
    expected = float((margins[torch.from_numpy(data.evaluate.indices)] > 0.2).float().mean())
    row = next(row for row in report.numbers if row.name == "pgd" and row.gamma is None)
    # Noise that leaves the range is clipped to it, which spares a few inputs at its ends.
    assert row.value == pytest.approx(expected, abs=0.05)
    assert str(report.budget) == "linf 0.1 of the range of each feature"
    assert report.data.kind == "table"
    page = report.to_html()
    assert "the features that moved most" in page


class Energy(nn.Module):
    """Signals `(B, 1, L)`: class 1 where the mean of the squares is above 0.1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.ndim == 3
        energy = x.square().mean((1, 2)) - 0.1
        return torch.stack([-energy, energy], 1)


def signals() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = np.repeat([0.2, 0.7], 60)
    x = sizes[:, None, None] * np.sin(np.arange(40) / 3 + rng.uniform(0, 6, (120, 1, 1)))
    return x.astype(np.float32), (sizes > 0.5).astype(np.int64)


def test_signals_of_a_file(tmp_path: Path) -> None:
    x, y = signals()
    np.savez(tmp_path / "waves.npz", x=x, y=y)
    (tmp_path / "energy.py").write_text(
        "import torch\n\n\ndef make():\n"
        "    def model(x):\n"
        "        energy = x.square().mean((1, 2)) - 0.1\n"
        "        return torch.stack([-energy, energy], 1)\n"
        "    return model\n"
    )
    run = ["assess", "--model", f"{tmp_path / 'energy.py'}:make", "--data", f"{tmp_path}/waves.npz"]
    rest = ["--sources", "uniform,pgd", "--eps", "0.05", "--draws", "4", "--out", f"{tmp_path}/run"]
    result = CliRunner().invoke(app, [*run, "--range", "-1,1", *rest])
    assert result.exit_code == 0, result.output
    report = nppr.read_report(tmp_path / "run" / "report.json")
    assert report.data.layout is not None
    assert report.data.layout.shape == (1, 40)
    assert str(report.budget) == "linf 0.05 of the range [-1, 1]"
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'class="signal"' in page
    assert "signals of 1 x 40, range [-1, 1]" in page


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--range", "-1,1", "--transform", "rotate=10"], "which is for images"),
        (["--range", "-1,1", "--eps", "0.1", "--quantise"], "8-bit images"),
        (["--range", "-1,1", "--eps", "0.1", "--resize", "8"], "`resize` must be left out"),
        (["--range", "-0.1,0.1", "--eps", "0.1"], "must cover the data"),
        (["--range", "up", "--eps", "0.1"], "Example: --range -1,1"),
    ],
)
def test_what_needs_images_is_refused(tmp_path: Path, more: list[str], words: str) -> None:
    x, y = signals()
    np.savez(tmp_path / "waves.npz", x=x, y=y)
    (tmp_path / "m.py").write_text("def make():\n    return lambda x: x.flatten(1)[:, :2]\n")
    run = ["assess", "--model", f"{tmp_path / 'm.py'}:make", "--data", f"{tmp_path}/waves.npz"]
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(app, [*run, "--out", f"{tmp_path}/run", *more], catch_exceptions=False)


def test_a_range_is_for_arrays() -> None:
    with pytest.raises(SpecError, match="must be given with arrays"):
        nppr.load_data("digits", input_range=(0, 1))


def test_five_dimensions_reach_the_model_as_they_are() -> None:
    x = torch.rand(30, 2, 3, 4, 5)
    seen: list[tuple[int, ...]] = []

    def model(inputs: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(inputs.shape[1:]))
        return inputs.flatten(1)[:, :2]

    nppr.assess(
        model,
        (x, torch.arange(30) % 2),
        input_range=(0, 1),
        budget=Budget.linf(0.1),
        sources="uniform",
        measure=nppr.Measure(draws=2),
    )
    assert set(seen) == {(2, 3, 4, 5)}
