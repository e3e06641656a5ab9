"""Runs made by hand, without a classifier: every kind of number, any number of classes, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppr.budget import Budget
from nppr.report.evidence import Evidence, Worst, write_evidence
from nppr.report.per_input import PerInput, per_input_of
from nppr.report.rows import rows_of
from nppr.report.schema import WITH_REFERENCES, AtRadius, Flag, Report, Result, failed, result
from nppr.sources import Bound, Gaussian, Uniform
from nppr.statistics.estimates import accuracy, adversarial, normalised, probabilistic
from nppr.types import Evaluate, Metric, Tally

MARKUP = "<script>alert(1)</script>"
BUDGET = Budget.linf("8/255")
FAMILY = {
    "dependency": "joint", "components": 7, "covariance": "diag", "upsampler": "none", "grid": None,
    "min_std": 0.05, "floor": 0.0,
}  # fmt: skip


def tally_of(mean: float, inputs: int, classes: int, draws: int, seed: int) -> Tally[Evaluate]:
    """A tally with about this share of right draws; every seventh input is wrong without noise."""
    generator = np.random.default_rng(seed)
    rates = generator.beta(2 * mean + 0.05, 2 * (1 - mean) + 0.05, inputs)
    return Tally(
        kind=Evaluate,
        indices=np.arange(inputs) * 3,
        labels=np.arange(inputs) % classes,
        clean_correct=np.arange(inputs) % 7 != 6,
        right=generator.binomial(draws, rates),
        draws=draws,
        calls=inputs * draws,
        micro_batch=64,
    )


def made_report(
    inputs: int = 120,
    classes: int = 10,
    *,
    only: str = "all",
    names: list[str] | None = None,
    radii: bool = False,
) -> tuple[Report, PerInput]:
    """A report and its inputs; `only` is all, noise, attack, bound, clean or failed."""
    clean = tally_of(1.0, inputs, classes, 1, seed=0)
    clean = Tally(**{**vars(clean), "right": clean.clean_correct.astype(np.int64)})
    rows: list[Result] = [result("clean", accuracy(clean, 0.95))]
    tallies: dict[str, Tally[Evaluate]] = {}
    if only in ("all", "noise", "failed"):
        for seed, noise in enumerate((Gaussian(BUDGET), Uniform(BUDGET)), start=1):
            tallies[noise.name] = tally_of(0.8 + 0.05 * seed, inputs, classes, 20, seed)
            rows += rows_of(noise, tallies[noise.name], clean, 0.95, 0)
    if only in ("all", "attack"):
        tallies["pgd"] = tally_of(0.05, inputs, classes, 1, seed=3)
        rows.append(result("pgd", adversarial(tallies["pgd"], 0.95)))
        rows.append(result("pgd", normalised(tallies["pgd"], 0.95, Metric.AR)))
        rows.append(result("merged", adversarial(tallies["pgd"], 0.95)))
    if only in ("all", "bound"):
        source = Bound(BUDGET, ratio="1+10")
        rows += rows_of(source, tally_of(0.97, inputs, classes, 20, seed=4), clean, 0.95, 0)
    if only == "all":
        rows += _learned_rows(tallies, inputs, classes)
    if only == "failed":
        rows.append(failed("nppr", Metric.NPPR, 0.95, "the fit met <b>nothing</b> to fit."))
    at = _other_radii(rows) if radii else ()
    report = _report(rows, inputs, classes, names, at, learned=only == "all")
    return report, per_input_of(tallies, 0.95)


def _learned_rows(tallies: dict[str, Tally[Evaluate]], inputs: int, classes: int) -> list[Result]:
    rows = []
    for seed, (name, mean) in enumerate({"nppr": 0.15, "nppr:floor=0.5": 0.6}.items(), start=5):
        tallies[name] = tally_of(mean, inputs, classes, 20, seed)
        found = probabilistic(tallies[name], 0.95, Metric.NPPR)
        rows += [result(name, row) for row in found]
        rows.append(result(name, normalised(tallies[name], 0.95, Metric.NPPR)))
        rows += [result(name + WITH_REFERENCES, row) for row in found]
    return rows


def _other_radii(rows: list[Result]) -> tuple[AtRadius, ...]:
    kept = tuple(
        row.model_copy(update={"value": row.value}) for row in rows if row.metric != "bound"
    )
    return (AtRadius(radius=2 / 255, text="2/255", results=kept),)


def _report(
    rows: list[Result],
    inputs: int,
    classes: int,
    names: list[str] | None,
    radii: tuple[AtRadius, ...],
    *,
    learned: bool,
) -> Report:
    flags = (Flag(id="approximate-interval", source="nppr", message="fewer than 400 inputs"),)
    return Report(
        schema_version=1,
        nppr_version="0.1.0",
        classifier={"name": "resnet20", "weights": None, "fingerprint": "ab12"},
        data={
            "name": "pictures", "classes": classes, "class_names": names, "shape": [3, 8, 8],
            "inputs": {"fit": 900, "select": 300, "evaluate": inputs}, "fingerprint": "cd34",
        },
        budget={"norm": "linf", "radius": 8 / 255, "text": "8/255"},
        seed=0,
        settings={
            "fit": {"family": FAMILY} if learned else None, "sources": ["nppr", "gaussian"],
            "draws": 20, "confidence": 0.95, "quantise": False,
        },
        results=tuple(rows),
        distributions=tuple(_made(floor) for floor in (0.0, 0.5)) if learned else (),
        flags=flags,
        grade={"letter": "B", "reason": "the numbers stand, with notes (approximate-interval)"},
        timing={
            "seconds": {"clean": 0.014, "a/b~c": 1.25},
            "total_seconds": 1234.567,
            "images_per_second": 880.25,
        },
        environment={"python": "3.11", "device": "cpu", "form": ["folded", "channels_last"]},
        radii=radii,
    )  # fmt: skip


def _made(floor: float) -> dict[str, Any]:
    stage = {
        "stage": "joint", "selected": "joint", "dependency": "joint", "components": 7,
        "floor": floor, "select_values": {"joint": 0.2}, "fit_calls": 2560, "forward_calls": 128,
        "loss": [3.0, 2.0, 1.0], "running_pr": [0.9, 0.5, 0.3],
    }  # fmt: skip
    return {
        "source": "nppr:floor=0.5" if floor else "nppr",
        "budget": {"norm": "linf", "radius": 8 / 255},
        "family": {**FAMILY, "floor": floor},
        "rule": "weights",
        "features": 64,
        "fit": {
            "selected": "joint, largest weight", "select_value": 0.1625, "stages": [stage],
            "with_references": {"winner": "family", "select_values": {"family": 0.1625}},
            "fit_calls": 7936, "forward_calls": 1824, "settings": {"family": FAMILY},
        },
        "diagnostics": {
            "entropy_ratio": 0.0871, "max_weight": 0.9439, "effective_components": 1.3851,
            "realised_std": 0.1841, "share_at_edge": 0.4541, "scale": 0.9997, "floor": floor,
        },
        "fit_seeds": None,
    }  # fmt: skip


def made_evidence(number: int = 8, classes: int = 10, side: int = 8, channels: int = 3) -> Evidence:
    """Pictures of the worst inputs under `nppr` and `pgd`."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(number, channels, side, side, generator=generator)
    delta = torch.randn(number, channels, side, side, generator=generator).tanh()
    perturbed = (clean + 8 / 255 * delta).clamp(0, 1)
    labels = torch.arange(number) % classes
    return Evidence(
        tuple(
            Worst(
                source=source,
                indices=torch.arange(number) * 3,
                labels=labels,
                taken_for=(labels + 1) % classes,
                rates=torch.linspace(0, 0.3, number),
                clean=(255 * clean).byte(),
                delta=delta.half(),
                perturbed=(255 * perturbed).byte(),
            )
            for source in ("pgd", "nppr")
        )
    )


def write_run(folder: Path, report: Report, per_input: PerInput, evidence: Evidence | None) -> Path:
    """A run folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
    (folder / "per_input.csv").write_text(per_input.to_csv(), encoding="utf-8", newline="")
    if evidence is not None:
        write_evidence(folder, evidence)
    return folder
