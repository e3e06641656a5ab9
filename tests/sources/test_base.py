"""The registry: names, options, and texts that become sources."""

import math
from dataclasses import dataclass

import pytest

from helpers import Stray
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.errors import SpecError
from nppr.source_names import FEWEST_OFFSET_CALLS, OWN_SOURCES
from nppr.sources import (
    CW,
    JPEG,
    PGD,
    SOURCES,
    AutoAttack,
    ClassicPGD,
    Gaussian,
    SaltAndPepper,
    Source,
    Stress,
    Uniform,
    Universal,
    WeakAdversary,
    check_unique,
    default_sources,
    option_defaults,
    parse_sources,
    references,
    sources_in,
    split_search,
)
from nppr.sources.attacks import GradientAttack
from nppr.sources.base import PASSES_PER_CALL, entry_of
from nppr.sources.gaussian_offset import GRADIENT_DRAWS, STEP_DRAWS

BUDGET = Budget.linf(0.1)


def test_sources_and_options() -> None:
    parsed = parse_sources(
        "gaussian, uniform:scale=0.5,pgd:steps=20:step=0.1:random-start=true", BUDGET
    )
    expected: list[Source] = [
        Gaussian(BUDGET),
        Uniform(BUDGET, 0.5),
        PGD(BUDGET, 20, 0.1),
    ]
    assert parsed == expected


def test_every_kind_of_option() -> None:
    parsed = parse_sources(
        "stress:q=1+50,jpeg:severity=2:constants=imagenet-c,salt-and-pepper,cw:restarts=2,"
        "weak-adversary:variance=0.5:step=1,universal:calls=640,autoattack:batch=7",
        BUDGET,
    )
    expected: list[Source] = [
        Stress(BUDGET, "1+50"),
        JPEG(2, "imagenet-c"),
        SaltAndPepper(),
        CW(BUDGET, restarts=2),
        WeakAdversary(BUDGET, 0.5, 1.0),
        Universal(BUDGET, 640),
        AutoAttack(BUDGET, 7),
    ]
    assert parsed == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pgd-3", ClassicPGD(BUDGET, steps=3, step=0.25, restarts=1)),
        ("pgd-10", ClassicPGD(BUDGET, steps=10, step=0.25, restarts=1)),
        ("pgd-20", PGD(BUDGET, steps=20, step=1.0, restarts=5)),
        ("cw-3", CW(BUDGET, steps=3, step=0.25, restarts=1)),
        ("cw-10", CW(BUDGET, steps=10, step=0.25, restarts=1)),
        ("cw-20", CW(BUDGET, steps=20, step=0.25, restarts=5)),
        ("pgd-20:step=0.1", PGD(BUDGET, steps=20, step=0.1, restarts=5)),
    ],
)
def test_presets(name: str, expected: GradientAttack) -> None:
    assert parse_sources(name, BUDGET) == [expected]


def test_the_command_line_knows_of_our_sources_what_their_classes_declare() -> None:
    declared = {name: entry_of(kind) for name, kind in SOURCES.own().items()}
    assert declared == OWN_SOURCES
    assert list(declared) == list(OWN_SOURCES)
    passes = 2 * GRADIENT_DRAWS + PASSES_PER_CALL * STEP_DRAWS
    assert math.ceil(passes / PASSES_PER_CALL) == FEWEST_OFFSET_CALLS


def test_presets_are_not_names_of_sources() -> None:
    presets = [name for kind in SOURCES.values() for name in kind.presets]
    assert not set(presets) & set(SOURCES)
    assert len(parse_sources(",".join(presets), BUDGET)) == len(presets)


@pytest.mark.parametrize("text", ["all", " all ", " all ,pgd-20", "pgd-20, all"])
def test_all_is_every_source(text: str) -> None:
    wanted, rest = split_search(text)
    assert wanted
    found = rest.split(",")
    known = sources_in(BUDGET)
    assert {part for part in found if part != "pgd-20"} == set(known)
    assert len(found) == len(set(found)) == len(known) + ("20" in text)
    names = [source.name for source in parse_sources(rest, BUDGET)]
    assert set(known) <= set(names)


def test_sources_fit_the_budget() -> None:
    box = Budget.box("rotate=10")
    assert set(sources_in(box)) | set(sources_in(BUDGET)) == set(SOURCES)
    assert split_search("all", box)[1].split(",") == sources_in(box)
    assert default_sources(box) == "nppr,gaussian,uniform,pgd,scan"
    for name, budget, other in (("laplace", box, BUDGET), ("scan", BUDGET, box)):
        assert parse_sources(name, other)
        with pytest.raises(SpecError, match=f"must fit the budget, got '{name}', which needs"):
            parse_sources(name, budget)


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
        parse_sources(split_search(text)[1], BUDGET)


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
        ("pgd-classic,pgd-10", "'pgd-classic' twice"),
        ("stress:q=0", "`q` of stress must hold numbers from 1"),
        ("stress:q=", "`q` of stress must hold numbers from 1"),
        ("stress:q=10+10", "every order once"),
        ("weak-adversary:variance=0", "`variance` must be a number > 0"),
        ("weak-adversary:steps=2", "`option of weak-adversary`"),
        ("universal:calls=10", "`calls` must be a whole number >= 64"),
        ("universal:epochs=5", "`option of universal`"),
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


@pytest.mark.parametrize("name", ["clean", "merged", "nppr", "all"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="is reserved"):
        check_unique([Stray(BUDGET, 0.0, name=name)])


def test_only_options_other_than_the_default_are_part_of_the_name() -> None:
    assert Gaussian(BUDGET).name == "gaussian"
    assert Gaussian(BUDGET, 0.12345678).name == "gaussian:scale=0.12345678"
    assert Gaussian(BUDGET, 3.0).name == "gaussian:scale=3"
    source = PGD(BUDGET, steps=20, random_start=False)
    assert source.name == "pgd:steps=20:random-start=false"
    assert list(option_defaults(PGD)) == ["steps", "step", "restarts", "random_start"]
    assert source.options((1, 8, 8))["steps"] == 20


def test_a_class_with_a_kind_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new source is one class: it can be written, listed, and compared with."""
    monkeypatch.setattr("nppr.sources.base.SOURCES", SOURCES.copy())

    @dataclass(frozen=True)
    class Half(Gaussian, kind="half"):
        """Gaussian noise of half the scale."""

        scale: float = 0.5

    assert parse_sources("half", BUDGET) == [Half(BUDGET)]
    assert parse_sources("half:scale=0.25", BUDGET)[0].name == "half:scale=0.25"
    assert split_search("all") == (True, ",".join([*sources_in(BUDGET)]))
    assert "half" in sources_in(BUDGET)
    assert default_sources().endswith(",half")
    assert Half(BUDGET) in references(BUDGET)


def test_a_source_moves_to_another_radius_with_its_options() -> None:
    other = Budget.linf(0.2)
    found = [(name, parse_sources(name, BUDGET)[0]) for name in sources_in(BUDGET)]
    within = [(name, source) for name, source in found if source.has_budget]
    assert len(within) > 5
    for name, source in within:
        assert source.at(other) == parse_sources(name, other)[0]
    assert PGD(BUDGET, steps=3).at(other) == PGD(other, steps=3)


def test_what_a_source_declares_is_consistent() -> None:
    for name, kind in SOURCES.items():
        (source,) = parse_sources(name, BUDGET if kind.adds else Budget.box("rotate=10"))
        assert source.kind == name
        assert (source.budget is not None) == kind.has_budget
        assert kind.is_fixed_noise >= kind.is_reference, "a reference is fixed noise"
        assert (source.metric in (Metric.AR, Metric.CORRUPTION)) == (source.fixed_draws == 1)
