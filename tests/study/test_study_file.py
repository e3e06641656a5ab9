from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from nppr.errors import SpecError
from nppr.study.study_file import (
    AXES,
    VALUES,
    ClassifierEntry,
    ColumnEntry,
    DataEntry,
    FitEntry,
    Grid,
    MeasureEntry,
    Paper,
    Study,
    TableEntry,
    Training,
    read_study,
    study_from,
)
from study.toys import toy

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"grids__0__componets": [3]}, "Did you mean 'components'?"),
    "unknown key of the study": ({"grid": []}, "Did you mean 'grids'?"),
    "unknown key deeper": ({"classifiers__0__wieghts": "x"}, "Did you mean 'weights'?"),
    "unknown key of a training": (
        {"classifiers__0__training": {"epoch": 3}},
        "Did you mean 'epochs'?",
    ),
    "a training without its radius": (
        {"classifiers__0__training": {"method": "pgd"}},
        "`eps` must be given with --method pgd. Example: --eps 8/255 (in classifiers.0.training)",
    ),
    "misspelt key that must be given": (
        {"data__0": {"name": "digits", "spc": "digits"}},
        "Did you mean 'spec'?",
    ),
    "dependency": ({"grids__0__dependencies": ["inpt"]}, "Did you mean 'input'?"),
    "norm": ({"grids__0__norms": ["linff"]}, "Did you mean 'linf'?"),
    "upsampler": ({"grids__0__upsamplers": ["bicubik"]}, "Did you mean 'bicubic'?"),
    "covariance": ({"grids__0__covariances": ["ful"]}, "Did you mean 'full'?"),
    "loss": ({"grids__0__losses": ["margn"]}, "Did you mean 'margin'?"),
    "preset": ({"fit__preset": "papre"}, "Did you mean 'paper'?"),
    "source": ({"grids__0__sources": ["unifrom"]}, "Did you mean 'uniform'?"),
    "source option": ({"grids__0__sources": ["uniform:scal=1"]}, "Did you mean 'scale'?"),
    "nppr as a source": ({"grids__0__sources": ["nppr"]}, "`dependencies`"),
    "two sources in one text": ({"grids__0__sources": ["uniform,pgd"]}, "one source"),
    "radius": ({"grids__0__radii": ["8/0"]}, "`radius` must be a number > 0"),
    "no radius": ({"grids__0": {"sources": ["uniform"]}}, "`radii` or `fit_radii`"),
    "empty list": ({"grids__0__components": []}, "the grid is empty"),
    "nothing to do": ({"grids__0": {"radii": [0.1]}}, "the grid is empty"),
    "no grid": ({"grids": []}, "`grids`"),
    "twice": ({"grids__0__seeds": [1, 1]}, "once, got it twice"),
    "components": ({"grids__0__components": [0]}, "`grids.0.components.0`"),
    "a number as text": ({"measure__draws": "many"}, "`measure.draws`"),
    "classifier of a grid": ({"grids__0__classifiers": ["cn"]}, "Did you mean 'cnn'?"),
    "feature model": ({"grids__0__feature_models": ["cn"]}, "Did you mean 'cnn'?"),
    "target": ({"grids__0__targets": ["cn"]}, "Did you mean 'cnn'?"),
    "data of a classifier": ({"classifiers__0__data": "digit"}, "Did you mean 'digits'?"),
    "axis": ({"tables__0__rows": ["sorce"]}, "Did you mean 'source'?"),
    "value": ({"tables__0__columns": [{"value": "entropy"}]}, "Did you mean 'entropy_ratio'?"),
    "filter": ({"tables__0__where": {"radus": 1}}, "Did you mean 'radius'?"),
    "path": ({"data__0__spec": "{cifar}/x"}, "`paths`"),
    "weights and a training": (
        {"classifiers__0__weights": "w", "classifiers__0__training": {}},
        "must be left out",
    ),
    "calls and epochs": ({"fit__epochs": 3}, "must not both be given"),
    "name": ({"name": "../up"}, "`name`"),
    "nothing": ({"data": []}, "`data`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_that_names_it(case: str) -> None:
    changes, said = BAD[case]
    with pytest.raises(SpecError) as caught:
        study_from(toy(**changes))
    message = str(caught.value)
    assert said in message
    assert "\n" not in message


def test_names_must_differ() -> None:
    entry = {"name": "cnn", "model": "digits-cnn"}
    with pytest.raises(SpecError, match="`classifiers` must have different names, got 'cnn' twice"):
        study_from(toy(classifiers=[entry, entry]))


def test_paths_are_filled_in_and_can_be_set() -> None:
    content = toy(data__0__spec="{place}/x.npz") | {"paths": {"place": "here"}}
    assert study_from(content).data[0].spec == "here/x.npz"
    assert study_from(content, {"place": "there"}).data[0].spec == "there/x.npz"
    with pytest.raises(SpecError, match="Did you mean 'place'"):
        study_from(content, {"plase": "there"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="TOML file that can be read"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(SpecError, match="must be a TOML file"):
        read_study(tmp_path / "bad.toml")
    for text in ("x = " + "[" * 5000, "x = " + "9" * 5000):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(SpecError, match="must be a TOML file"):
            read_study(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="must be a TOML file"):
        read_study(tmp_path / "bytes.toml")


DOCS = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")


def test_the_documented_example_is_a_study() -> None:
    example = DOCS.partition("```toml\n")[2].partition("```")[0]
    assert study_from(tomllib.loads(example)).name == "mine"


MODELS: tuple[type[BaseModel], ...] = (
    Study, DataEntry, ClassifierEntry, Training, Grid, FitEntry, MeasureEntry, TableEntry,
    ColumnEntry, Paper,
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_is_documented(model: type[BaseModel]) -> None:
    absent = [
        name for name in model.model_fields if not re.search(rf"`[^`]*\b{name}\b[^`]*`", DOCS)
    ]
    assert absent == []


def test_every_axis_and_value_is_documented() -> None:
    assert [name for name in (*AXES, *VALUES) if f"`{name}`" not in DOCS] == []
