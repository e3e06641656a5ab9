"""Estimate the passes through the classifier that a run takes, and its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nppr.core.draw_count import FEWEST_DRAWS
from nppr.core.random_draws import DRAWS_PER_BLOCK
from nppr.data import Data
from nppr.models import PreparedClassifier
from nppr.run.ladder import CHECKED_INPUTS, SAME_PATTERN_DRAWS
from nppr.search.search import MOST_JUDGE_DRAWS, SELECT_DRAWS, SELECT_INPUTS, fit_inputs
from nppr.search.search_settings import SearchSettings, Stage, walk
from nppr.settings import Measure
from nppr.sources import Source
from nppr.sources.base import PASSES_PER_CALL

SCORED = 1.25
"""The same of a call of a search without gradients, with the ranking of its answers."""

ROUGH = 0.7
"""Time of a call with rough gradients over that of one with exact ones."""

JUDGED_BESIDES = 5
"""Candidates of a stage beside its components: the edge, half of the calls, parents, fixed noise."""

EXAMINED, ATTACKED, SHOWN = 32, 16, 12
"""Inputs that are examined before a run, attacked for that, and drawn again for the page."""

STEP_SECONDS = 0.008
"""Seconds of a step of a search beside its passes: making noise, and gradients in its parameters."""

ONCE, EACH = 0.4, 0.1
"""Seconds of what a run does once, and for every source: statistics, flags, files."""


@dataclass(frozen=True)
class Work:
    """Forward passes of a run; a backward pass counts as two."""

    plain: float
    """Passes of measurements without gradients."""
    guided: float
    """Passes of sources that take gradients."""
    fits: float
    judged: float
    """Passes without gradients by which a search chooses."""
    steps: int
    sources: int

    def seconds(
        self, classifier: PreparedClassifier, search: PreparedClassifier | None, workers: int = 1
    ) -> float:
        """Return the seconds with these variants of the classifier; workers share the measuring."""
        search = search or classifier
        rough = 1.0 if search.fast.bfloat16_copy is None else ROUGH
        each = (
            self.plain / classifier.images_per_second / workers
            + self.guided / classifier.eager_images_per_second / workers
            + self.judged / search.images_per_second
            + rough * self.fits / search.eager_images_per_second
        )
        beside = ONCE + EACH * self.sources + STEP_SECONDS * self.steps
        return beside + each


def count_passes(
    data: Data, settings: Measure, sources: Sequence[Source], search: SearchSettings | None
) -> Work:
    """Count the passes of a run; with a wanted precision, the passes of its first round."""
    inputs, draws = len(data.evaluate), settings.draws or FEWEST_DRAWS
    radii = 1 + len(settings.radii)
    plain, guided = float(inputs + (settings.rare_calls or 0)), _examined(inputs)
    plain += min(inputs, SHOWN) * min(draws, DRAWS_PER_BLOCK) * min(3, len(sources))
    for source in sources:
        own = inputs * (source.fixed_draws or draws) * radii
        guided += source.fit_passes(len(data.fit)) + radii * source.search_passes(inputs)
        if source.cost <= 1.25:
            plain += own
        else:
            plain, guided = plain + own, guided + own * (source.cost - 1)
    if search is None:
        return Work(plain, guided, 0.0, 0.0, 0, len(sources))
    scored = search.recipe.scores
    per_call = SCORED if scored else PASSES_PER_CALL
    rungs = len(search.sets)
    plain += inputs * draws * rungs * radii
    stages = walk(search, data.classes, data.shape)
    few = min(draws, SAME_PATTERN_DRAWS)
    plain += inputs * few * sum(0 < stage.family.floor < 1 for stage in stages)
    if search.per_input_calls:
        searched = inputs * radii + 2 * min(inputs, CHECKED_INPUTS)
        guided += len(search.floors) * searched * search.per_input_calls * PASSES_PER_CALL
    fits = search.seeds * search.total_calls * per_call
    fits += fit_inputs(len(data.fit), search.calls) + min(len(data.select), SELECT_INPUTS)
    judged = search.seeds * _judged(data, search, stages)
    steps = search.seeds * sum(stage.steps for stage in stages)
    return Work(plain, guided, fits, judged, steps, len(sources) + rungs)


def _examined(inputs: int) -> float:
    """Count the passes of examining the model: answers, gradients, and 20 steps of an attack."""
    return 8.0 * min(inputs, EXAMINED) + 61.0 * min(inputs, ATTACKED)


def _judged(data: Data, search: SearchSettings, stages: Sequence[Stage]) -> float:
    """Count the forward passes by which all candidates are judged on the select split."""
    if not search.walks:
        return 0.0
    inputs = max(1, min(len(data.select), SELECT_INPUTS))
    each = inputs * min(MOST_JUDGE_DRAWS, -(-SELECT_DRAWS // inputs))
    return float(sum(each * (stage.family.components + JUDGED_BESIDES) for stage in stages))
