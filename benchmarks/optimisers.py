"""Sign-momentum steps against Adam at equal calls, on every rung: which finds the worse noise?

    python benchmarks/optimisers.py                                   digits, 3 seeds
    python benchmarks/optimisers.py resnet18 cifar10 16/255 --weights resnet18_cifar10.safetensors

One line per rung: the PR that each leaves on the same evaluated inputs and draws, for every seed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

import nppr
from nppr.data import load_data
from nppr.measuring.measurement import measure, probe
from nppr.models import load_classifier, prepare_for_search
from nppr.run.assessment_run import AssessmentRun
from nppr.run.resolve import Resolved
from nppr.search.search_settings import default_settings
from nppr.settings import Measure

RULES = {"sign-momentum": 0.9, "adam": None}
DRAWS = 16


def numbers(text: str) -> tuple[float, ...]:
    """One number per channel, separated by commas."""
    return tuple(float(each) for each in text.split(","))


def main() -> None:
    """Search with both rules and every seed, and print what each leaves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="digits-cnn")
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("eps", nargs="?", default="0.1")
    parser.add_argument("--weights")
    parser.add_argument("--mean", type=numbers)
    parser.add_argument("--std", type=numbers)
    parser.add_argument("--calls", type=int, default=92_160)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--inputs", type=int, default=500)
    args = parser.parse_args()
    data = load_data(args.data).limit(inputs=args.inputs, seed=0)
    classifier = load_classifier(
        args.model, weights=args.weights, mean=args.mean, std=args.std, data=data
    )
    budget = nppr.Budget.linf(args.eps)
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(args.seeds):
        for rule, momentum in RULES.items():
            # Adam's own rates are those of the first version.
            search = default_settings(floors=(0.0,), calls=args.calls, momentum=momentum)
            if momentum is None:
                recipe = replace(search.recipe, rate=0.3, head_rate=2e-3)
                search = replace(search, recipe=recipe, child_rate=0.1)
            began = time.perf_counter()
            resolved = Resolved(data, classifier)
            setup = AssessmentRun.open(resolved, budget, Measure(seed=seed), search=search)
            learned = setup.search(search).run()
            ready = prepare_for_search(setup.classifier, probe(data.evaluate))
            for each in learned:
                tally = measure(each.source, ready, data.evaluate, draws=DRAWS, seed=99)
                value = 100 * float(tally.headline_rates.mean())
                found.setdefault(each.source.name, {}).setdefault(rule, []).append(value)
            print(f"seed {seed}, {rule}: {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{args.model}, {args.data}, linf {args.eps}, {args.calls:,} calls, PR left in %")
    for name, values in found.items():
        columns = [
            f"{rule} {np.mean(each):5.1f} ({', '.join(f'{value:.1f}' for value in each)})"
            for rule, each in values.items()
        ]
        print(f"{name:28}", "   ".join(columns))


if __name__ == "__main__":
    main()
