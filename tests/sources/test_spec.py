import pytest

from helpers import Stray
from nppr.budget import Budget
from nppr.errors import SpecError
from nppr.sources import (
    CORRUPTIONS,
    CW,
    JPEG,
    PGD,
    PRESETS,
    SOURCES,
    AutoAttack,
    Gaussian,
    SaltAndPepper,
    Stress,
    Uniform,
    Universal,
    WeakAdversary,
    parse_sources,
)
from nppr.sources.attacks import Climb
from nppr.sources.spec import check_unique, split_nppr
from nppr.tally import PerturbationSource

BUDGET = Budget.linf(0.1)


def test_sources_and_options() -> None:
    parsed = parse_sources(
        "gaussian, uniform:scale=0.5,pgd:steps=20:step=0.1:random-start=true", BUDGET
    )
    expected: list[PerturbationSource] = [
        Gaussian(BUDGET),
        Uniform(BUDGET, 0.5),
        PGD(BUDGET, 20, 0.1),
    ]
    assert parsed == expected


def test_every_kind_of_option() -> None:
    parsed = parse_sources(
        "stress:q=1+50,jpeg:severity=2:constants=imagenet-c,salt-and-pepper,cw:restarts=2,"
        "weak-adversary:variance=0.5:step=1,universal:epochs=2,autoattack:batch=7",
        BUDGET,
    )
    expected: list[PerturbationSource] = [
        Stress(BUDGET, "1+50"),
        JPEG(2, "imagenet-c"),
        SaltAndPepper(),
        CW(BUDGET, restarts=2),
        WeakAdversary(BUDGET, 0.5, 1.0),
        Universal(BUDGET, 2),
        AutoAttack(BUDGET, 7),
    ]
    assert parsed == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pgd-3", PGD(BUDGET, steps=3, step=0.25, restarts=1)),
        ("pgd-10", PGD(BUDGET, steps=10, step=0.25, restarts=1)),
        ("pgd-20", PGD(BUDGET, steps=20, step=0.25, restarts=5)),
        ("cw-3", CW(BUDGET, steps=3, step=0.25, restarts=1)),
        ("cw-10", CW(BUDGET, steps=10, step=0.25, restarts=1)),
        ("cw-20", CW(BUDGET, steps=20, step=0.25, restarts=5)),
        ("pgd-20:step=0.1", PGD(BUDGET, steps=20, step=0.1, restarts=5)),
    ],
)
def test_presets(name: str, expected: Climb) -> None:
    assert parse_sources(name, BUDGET) == [expected]


def test_presets_are_no_names_of_sources() -> None:
    assert not set(PRESETS) & {*SOURCES, *CORRUPTIONS}
    assert len(parse_sources(",".join(PRESETS), BUDGET)) == len(PRESETS)


@pytest.mark.parametrize("text", ["all", " all ", " all ,pgd-20", "pgd-20, all"])
def test_all_is_every_source(text: str) -> None:
    wanted, rest = split_nppr(text)
    assert wanted
    found = rest.split(",")
    assert {part for part in found if part != "pgd-20"} == {*SOURCES, *CORRUPTIONS}
    assert len(found) == len(set(found)) == len(SOURCES) + len(CORRUPTIONS) + ("20" in text)
    names = [source.name for source in parse_sources(rest, BUDGET)]
    assert {*SOURCES, *CORRUPTIONS} <= set(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all,nppr", "'nppr' twice"),
        ("all,all", "twice"),
        ("all:steps=3", "`source` must be one of"),
    ],
)
def test_all_holds_nppr_and_has_no_options(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_sources(split_nppr(text)[1], BUDGET)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian", "Did you mean 'gaussian'"),
        ("", "`source` must be one of"),
        ("gaussian,,pgd", "`source` must be one of"),
        ("pgd:step-size=3", "`option of pgd`.*Did you mean 'steps'|`option of pgd`"),
        ("pgd:stps=3", "Did you mean 'step"),
        ("pgd:steps", "must have a value"),
        ("pgd:steps=2.5", "whole number, got '2.5'"),
        ("pgd:steps=0", "`steps` must be a whole number >= 1"),
        ("pgd:random-start=yes", "true or false"),
        ("gaussian:scale=big", "a number, got 'big'"),
        ("gaussian:scale=-1", "`scale` must be a number > 0"),
        ("uniform,pgd,uniform", "'uniform' twice"),
        ("pgd,pgd:steps=10", "'pgd' twice"),
        ("gaussian:budget=3", "`option of gaussian`"),
        ("pgd:steps=5:steps=7", "`steps` of pgd must be given once"),
        ("pgd-20:steps=7", "`steps` of pgd must be given once"),
        ("pgd-5", "Did you mean 'pgd"),
        ("pgd,pgd-10", "'pgd' twice"),
        ("stress:q=0", "`q` of stress must hold numbers from 1"),
        ("stress:q=", "`q` of stress must hold numbers from 1"),
        ("stress:q=10+10", "every order once"),
        ("weak-adversary:variance=0", "`variance` must be a number > 0"),
        ("weak-adversary:steps=2", "`option of weak-adversary`"),
        ("universal:epochs=0", "`epochs` must be a whole number >= 1"),
        ("universal:step=3", "`step` must lie in"),
        ("autoattack:batch=0", "`batch` must be a whole number >= 1"),
        ("autoattack:batch=2.5", "whole number, got '2.5'"),
        ("jpeg:severity=6", "`severity` must be a whole number from 1 to 5"),
        ("jpeg:constants=cifar", "`constants` must be one of"),
        ("jpeg:kind=png", "`option of jpeg`"),
    ],
)
def test_bad_text_is_named(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_sources(text, BUDGET)


@pytest.mark.parametrize("name", ["clean", "merged"])
def test_rows_of_the_report_are_no_names_for_sources(name: str) -> None:
    with pytest.raises(SpecError, match="is taken"):
        check_unique([Stray(BUDGET, 0.0, name=name)])
