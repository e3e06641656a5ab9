"""Are nested families in order? K = 3, 7, 12 x independent, label, input, joint on one classifier.

Every family is fitted once, warm-started at the best of the families inside it, and chosen on the
select split. On the evaluate split a larger family must not come out more robust than a smaller one:
paired differences over inputs (same draws), one-sided at 95 %, Holm over all pairs that
are not tied: equal on every input, as where a child keeps its parent. Example:

    python benchmarks/orders.py --model resnet20 --weights W.safetensors --data CIFAR --eps 8/255 \
        --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import product

import numpy as np
import scipy.stats

from nppr.core.budget import Budget
from nppr.core.tally import FloatArray
from nppr.data import load_data
from nppr.measuring.measurement import measure, probe
from nppr.models import SPEEDUPS, load_classifier, prepare
from nppr.noise import Family
from nppr.noise.rungs import LADDER, Dependency
from nppr.search import default_settings
from nppr.search.search import FinishedStage, NoiseSearch
from nppr.search.search_settings import Stage
from nppr.sources import Clean
from nppr.sources.learned import Learned
from nppr.statistics import holm

COMPONENTS = (3, 7, 12)
RUNGS = tuple(rung for rung in LADDER if rung.is_fitted)
POINT = 0.001
Node = tuple[int, Dependency]


def inside(small: Node, large: Node) -> bool:
    """Whether the first family lies in the second and is not the same."""
    return small != large and small[0] <= large[0] and large[1].contains(small[1])


def fit_all(search: NoiseSearch, calls: int, family: Family) -> dict[Node, FinishedStage]:
    """Fit every family, the smaller ones first."""
    done: dict[Node, FinishedStage] = {}
    base = search.settings.recipe
    for node in product(COMPONENTS, RUNGS):
        nearest = [
            other
            for other in done
            if inside(other, node) and not any(inside(other, x) and inside(x, node) for x in done)
        ]
        recipe = replace(base, rate=search.settings.child_rate) if nearest else base
        stage = Stage(
            name=f"{node[1].value}-{node[0]}",
            family=family.with_(components=node[0], dependency=node[1]),
            parents=(),
            recipe=recipe,
            steps=calls * (1 if nearest else 2) // (recipe.inputs * recipe.draws),
        )
        start = time.perf_counter()
        done[node] = search.complete(stage, [done[other] for other in nearest])
        print(
            f"  {stage.name:16s} select {done[node].select_value:.3f}  {done[node].record.selected}"
            f"  ({time.perf_counter() - start:.0f} s)",
            flush=True,
        )
    return done


def report(rates: dict[Node, FloatArray]) -> None:
    """The table, and the pairs in the wrong order."""
    print("NPPR on evaluate, %   " + "  ".join(f"{each.value:>11s}" for each in RUNGS))
    for components in COMPONENTS:
        row = (100 * float(rates[components, each].mean()) for each in RUNGS)
        print(
            f"  K = {components:<2d}              " + "  ".join(f"{value:11.1f}" for value in row)
        )
    pairs = [(small, large) for small in rates for large in rates if inside(small, large)]
    excess = [rates[large] - rates[small] for small, large in pairs]
    p = np.array(
        [
            scipy.stats.ttest_1samp(each, 0, alternative="greater").pvalue if each.any() else 1.0
            for each in excess
        ]
    )
    untied = np.array(
        [each.any() for each in excess]
    )  # a child that kept its parent is no evidence
    violations = int(holm(p[untied], 0.05).sum())
    raw = [float(each.mean()) for each in excess]
    above = sum(value > POINT for value in raw)
    lower = sum(value < 0 for value in raw)
    print(
        f"{len(pairs)} nested pairs: {lower} in order, {int((~untied).sum())} tied on every input,"
    )
    print(f"{violations} violations (paired, one-sided 95 %, Holm over those not tied),")
    print(f"{above} raw differences above 0.1 point, the largest {100 * max(raw):.1f} points")


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    return tuple(float(part) for part in text.split(",")) if text else None


def main() -> None:
    """Fit, measure, compare."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("model", "weights", "data", "mean", "std"):
        parser.add_argument(f"--{name}", required=name in ("model", "data"))
    parser.add_argument("--eps", default="8/255")
    parser.add_argument(
        "--calls", type=int, default=15_360, help="of every family; twice for the first"
    )
    parser.add_argument("--upsampler", default="none")
    given = parser.parse_args()
    data = load_data(given.data).limit(inputs=500, fit_inputs=4000, select_inputs=500, seed=0)
    classifier = load_classifier(
        given.model,
        weights=given.weights,
        data=data,
        mean=numbers(given.mean),
        std=numbers(given.std),
    )
    ready = prepare(
        classifier, probe(data.evaluate), classes=data.classes, micro_batch=64, speedups=SPEEDUPS
    )
    family = Family(upsampler=given.upsampler)
    budget = Budget.linf(given.eps)
    search = NoiseSearch(default_settings(family, calls=92_160), ready, data, budget)
    done = fit_all(search, given.calls, family)
    clean = measure(Clean(), ready, data.evaluate).correct == 1
    known: dict[int, FloatArray] = {}
    rates: dict[Node, FloatArray] = {}
    for node, finished in done.items():
        kept = id(finished.selected)  # a child that keeps its parent is that source
        if kept not in known:
            source = Learned(budget, finished.selected)
            tally = measure(source, ready, data.evaluate, draws=16, clean_correct=clean)
            known[kept] = tally.headline_rates
        rates[node] = known[kept]
    report(rates)
    calls = sum(finished.record.fit_calls for finished in done.values())
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes, {calls:,} calls")


if __name__ == "__main__":
    main()
