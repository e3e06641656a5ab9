"""Estimates count the passes that a run really takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nppr
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.measuring.measurement import measure, probe
from nppr.models import load_classifier, prepare
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.run.time_estimate import count_passes
from nppr.search.search_settings import default_settings
from nppr.settings import Measure
from nppr.sources import ClassicPGD, Uniform
from nppr.sources.base import PASSES_PER_CALL

BUDGET = Budget.linf(0.1)


def test_the_passes_of_sources_are_those_they_take() -> None:
    data = load_data("digits").limit(inputs=50)
    ready = prepare(load_classifier("digits-cnn"), probe(data.evaluate), classes=10)
    settings = Measure(draws=20)
    alone = count_passes(data, settings, [], None)
    for source in (Uniform(BUDGET), ClassicPGD(BUDGET, steps=5)):
        work = count_passes(data, settings, [source], None)
        counted = work.plain + work.guided - alone.plain - alone.guided
        calls = measure(source, ready, data.evaluate, draws=20).calls
        least = calls if source.cost == 1 else PASSES_PER_CALL * 0.5 * calls
        assert least <= counted <= 3.5 * calls
        assert (work.guided > alone.guided) == (source.cost > 1)


@pytest.mark.slow
@pytest.mark.parametrize("rung", [Dependency.INDEPENDENT, Dependency.JOINT])
def test_the_passes_of_a_search_are_those_it_takes(rung: Dependency) -> None:
    data = load_data("digits").limit(inputs=20, fit_inputs=200, select_inputs=60)
    search = default_settings(Family(rung), floors=(0.0, 0.5), calls=3072, inputs=64)
    search = replace(search, per_input_calls=0)
    found = nppr.learn("digits-cnn", data, budget=BUDGET, search=search)
    stages = {stage.stage: stage for each in found for stage in each.record.search.stages}
    taken = sum(
        PASSES_PER_CALL * stage.fit_calls + stage.forward_calls for stage in stages.values()
    )
    work = count_passes(data, Measure(draws=4), [], search)
    counted = work.fits + work.judged
    assert 0.6 * taken <= counted <= 1.6 * taken


def test_every_rung_and_radius_is_counted() -> None:
    data = load_data("digits").limit(inputs=50)
    search = default_settings(Family(Dependency.LABEL), calls=3072)
    own = replace(search, per_input_calls=20)
    none = replace(search, per_input_calls=0)
    settings = Measure(draws=20)
    alone, with_own = (count_passes(data, settings, [], each) for each in (none, own))
    assert with_own.plain - alone.plain == 2 * 50 * 20
    assert with_own.guided > alone.guided
    further = count_passes(data, settings.with_(radii=("0.2",)), [Uniform(BUDGET)], None)
    assert further.plain - count_passes(data, settings, [Uniform(BUDGET)], None).plain == 50 * 20
