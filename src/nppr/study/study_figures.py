"""The figures of the noise that a study learned, for papers: mixtures, where draws lie, t-SNE."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from nppr.report import read_run
from nppr.report.evidence import Evidence
from nppr.run.collect_evidence import collect_draws
from nppr.study.graph import Graph, MeasureWork
from nppr.study.node_cache import NodeCache
from nppr.study.node_work import open_measurement
from nppr.system.manifest import Manifest


def write_noise_figures(
    graph: Graph, cache: NodeCache, finished: Collection[str], out: Path, formats: Sequence[str]
) -> list[Path]:
    """Draw the learned noise of every finished measurement into a separate folder in `figures`."""
    # Matplotlib and scikit-learn take seconds to import.
    from nppr.report.figures import Subject, draw, save
    from nppr.report.figures.noise_figures import NOISE_FIGURES

    written = []
    for key in dict.fromkeys(cell.measure for cell in graph.cells if cell.measure in finished):
        node = graph.nodes[key]
        if not isinstance(node.work, MeasureWork) or node.work.fit is None:
            continue
        if node.work.per_input_calls:
            continue  # every input has a different law
        files = read_run(cache.folder(key) / "run")
        lines = files.report.per_input
        correct = np.unique(lines["index"][lines["clean_correct"] == 1])
        run, _, learned = open_measurement(node.work, cache)
        with run:
            positions = np.flatnonzero(np.isin(run.data.evaluate.indices, correct))
            drawn = collect_draws(run, [each.source for each in learned], positions)
        subject = Subject(files.report, files.per_input, Evidence((), drawn))
        place = out / "figures" / f"{re.sub(r'[^A-Za-z0-9.=-]+', '-', node.label)}-{key[:8]}"
        shown = draw(NOISE_FIGURES, subject)
        Manifest(out, "study").add(
            *(place / f"{each.id}.{form}" for each in shown for form in formats)
        )
        written += save(shown, place, formats)
    return written
