"""How often does the search accept a child that is better, equal or worse than its parent?

A child is accepted where its PR on the select split is below its parent's by more than BETTER_BY
standard errors of their paired difference (`nppr.search.selection.best`). Inputs are simulated:
bimodal, Beta(s m, s (1 - m)) with mean m and s = 0.5; under the child some of them have a
probability of their own, the others that of the parent, less the difference. Four draws are seen of
each input. With four candidates the lowest one is compared with the parent, as after a stage of the
search. Example:

    python benchmarks/parent_rule.py --margins 1,1.645
"""

from __future__ import annotations

import argparse
import math
from itertools import product

import numpy as np

from nppr.core.tally import FloatArray
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.search import selection
from nppr.search.selection import Candidate, best

MEAN, SPREAD, DRAWS = 0.5, 0.5, 4
ANY = Distribution(Family(dependency=Dependency.INDEPENDENT, components=1), (1, 1, 1), 2)


def probabilities(rng: np.random.Generator, mean: float, inputs: int) -> FloatArray:
    """Probabilities of inputs to be classified correctly, with this mean."""
    return rng.beta(SPREAD * mean, SPREAD * (1 - mean), inputs)


def drawn(rng: np.random.Generator, name: str, p: FloatArray) -> Candidate:
    """A candidate with the rates that its draws show."""
    return Candidate(name, ANY, rng.binomial(DRAWS, p) / DRAWS)


def accepted(
    rng: np.random.Generator, inputs: int, better: float, own: float, candidates: int
) -> bool:
    """Whether a child is taken whose mean is lower by `better`, with a share `own` of other inputs."""
    p = probabilities(rng, MEAN, inputs)
    children = []
    for _ in range(candidates):
        other = rng.random(inputs) < own
        q = np.where(other, probabilities(rng, MEAN - better, inputs), p * (1 - better / MEAN))
        children.append(drawn(rng, "child", np.clip(q, 0.0, 1.0)))
    return best(children, [drawn(rng, "parent", p)]).name == "child"


def main() -> None:
    """One line per margin, number of inputs, share of other inputs and number of candidates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--margins", default=str(selection.BETTER_BY))
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    differences = (0.0, 0.02, 0.05, -0.02)
    print(
        f"accepted, %, of {given.repeats}: margin, inputs, share of other inputs, candidates, then"
    )
    print(
        "  equal, better by 2 and by 5 points, worse by 2 points (a standard error of at most",
        end="",
    )
    print(f" {100 * math.sqrt(0.25 / given.repeats):.1f})")
    for margin in map(float, given.margins.split(",")):
        selection.BETTER_BY = margin
        for inputs, own, candidates in product((300, 1000), (0.25, 1.0), (1, 4)):
            shares = [
                np.mean([accepted(rng, inputs, d, own, candidates) for _ in range(given.repeats)])
                for d in differences
            ]
            row = "  ".join(f"{100 * share:5.1f}" for share in shares)
            print(f"{margin:5.3f}  {inputs:5d}  {own:4.2f}  {candidates}    {row}", flush=True)


if __name__ == "__main__":
    main()
