"""From a study to its graph: what is computed, once each, and what needs what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from nppr.budget import Budget
from nppr.classifiers import usable_device
from nppr.distributions import Dependency
from nppr.errors import SpecError
from nppr.sources import Universal, parse_sources
from nppr.sources.naming import all_options
from nppr.study.axes import AXES, LEARNED
from nppr.study.families import Member, closed, nearest
from nppr.study.fits import Chain, stage_of
from nppr.study.graph import Cell, Graph, Node
from nppr.study.models import Models
from nppr.study.spec import OWN, Grid, StudySpec

__all__ = ["MOST_NODES", "PASSES_OF_A_CALL", "plan"]

MOST_NODES = 10_000
PASSES_OF_A_CALL = 3.5
"""Forward passes that a forward and backward takes, with the selection that comes with it."""


def plan(spec: StudySpec, *, device: str | None = None, most: int | None = MOST_NODES) -> Graph:
    """The graph of a study; more than `most` nodes are an error."""
    planner = _Planner(spec, device, most)
    planner.build()
    return planner.graph


class _Planner:
    def __init__(self, spec: StudySpec, device: str | None, most: int | None) -> None:
        self.spec = spec
        self.most = most
        self.graph = Graph()
        self.common = {
            "device": usable_device(device).type,
            "quantise": spec.measure.quantise,
            "threads": spec.measure.threads,
        }
        self.run = {
            **self.common,
            "device": device or self.common["device"],
            "confidence": spec.measure.confidence,
        }
        self.models = Models(spec, self.common, self.run, self._add)
        self.graph.missing += self.models.missing
        self.fitted: dict[tuple[Chain, Member], Node] = {}

    def build(self) -> None:
        """All nodes and cells, grid by grid."""
        chains: dict[Chain, set[Member]] = {}
        for grid in self.spec.grids:
            for chain, member in self._wishes(grid):
                chains.setdefault(chain, set()).add(member)
        for chain, wanted in chains.items():
            self._fit_chain(chain, wanted)
        for grid in self.spec.grids:
            self._learned_cells(grid)
            self._source_cells(grid)

    def _add(self, node: Node) -> Node:
        added = self.graph.add(node)
        if self.most is not None and len(self.graph.nodes) > self.most:
            raise SpecError(
                f"`grids` must make at most {self.most:,} nodes, got more. Add --yes to run them"
                " all, or make the grids smaller."
            )
        return added

    def _of_classifier(self, name: str) -> dict[str, str]:
        """What all work with a classifier needs: its answers, and its weights if trained here."""
        train = self.models[name].train
        trained = {} if train is None else {"train": train.hash}
        return {"clean": self.models.clean(name).hash, **trained}

    def _names(self, grid: Grid) -> list[str]:
        return grid.classifiers or [each.name for each in self.spec.classifiers]

    def _chains(self, grid: Grid) -> Iterator[Chain]:
        fit_radii = grid.fit_radii or grid.radii or []
        covariances: Sequence[str | None] = grid.covariances or [None]
        upsamplers: Sequence[str | None] = grid.upsamplers or [None]
        passes: Sequence[int | None] = grid.epochs or [None]
        axes = product(
            self._names(grid),
            grid.feature_models or [OWN],
            grid.norms,
            fit_radii,
            covariances,
            upsamplers,
            grid.losses,
            passes,
            grid.fit_seeds,
        )
        for name, features, norm, radius, covariance, upsampler, loss, epochs, seed in axes:
            yield Chain(
                classifier=name,
                feature_model=self.models.feature_source(name, features),
                norm=norm,
                radius=Budget.parse(norm, radius).radius,
                covariance=covariance,
                upsampler=upsampler,
                loss=loss,
                epochs=epochs,
                seed=seed,
                fit=grid.fit or self.spec.fit,
            )

    def _members(self, grid: Grid) -> list[Member]:
        return [
            Member(floor, components, Dependency(dependency))
            for floor, dependency, components in product(
                grid.floors, grid.dependencies, grid.components
            )
        ]

    def _wishes(self, grid: Grid) -> Iterator[tuple[Chain, Member]]:
        members = self._members(grid)
        if members:
            for chain in self._chains(grid):
                yield from ((chain, member) for member in members)

    def _fit_chain(self, chain: Chain, wanted: set[Member]) -> None:
        members = sorted(wanted) if chain.paper else closed(wanted)
        for member in members:
            parents = [] if chain.paper else nearest(member, members)
            before = [self.fitted[chain, parent] for parent in parents]
            self.fitted[chain, member] = self._fit(chain, member, before)

    def _fit(self, chain: Chain, member: Member, parents: list[Node]) -> Node:
        model = self.models[chain.classifier]
        settings, stage = stage_of(chain, member, model.inputs["fit"], first=not parents)
        needs = self._of_classifier(chain.classifier)
        if member.dependency.sees_input:
            needs["features"] = self.models.features(chain.feature_model, chain.classifier).hash
        needs |= {f"parent-{number}": each.hash for number, each in enumerate(parents)}
        calls = stage.steps * stage.recipe.inputs * stage.recipe.draws
        budget = Budget.parse(chain.norm, chain.radius)
        up = stage.family.upsampler
        return self._add(
            Node(
                kind="fit",
                label=f"fit {chain.classifier}, {budget}, {up}, {stage.name}"
                + (f", seed {chain.seed}" if chain.seed else ""),
                determined_by={
                    **self.common,
                    "budget": [chain.norm, chain.radius],
                    "family": stage.family.as_dict(),
                    "recipe": asdict(stage.recipe),
                    "steps": stage.steps,
                    "stage": stage.name,
                    "walks": settings.walks,
                    "seed": chain.seed,
                },
                needs=needs,
                how={**self.run, **model.how_all, "parents": [each.label for each in parents]},
                passes=calls * PASSES_OF_A_CALL,
                calls=calls,
                speed=model.speed,
            )
        )

    def _learned_cells(self, grid: Grid) -> None:
        for chain, member in self._wishes(grid):
            fitted = self.fitted[chain, member]
            own = [chain.radius]
            radii = grid.radii if grid.fit_radii and grid.radii else own
            family = chain.family(member)
            place = {
                "source": LEARNED,
                "dependency": member.dependency.value,
                "components": member.components,
                "covariance": family.covariance,
                "upsampler": family.upsampler,
                "loss": chain.loss,
                "feature_model": self.models.label(chain.feature_model),
                "floor": member.floor,
                "epochs": chain.epochs if chain.epochs is not None else "",
                "fit_radius": Budget.parse(chain.norm, chain.radius).radius_text,
            }
            targets = self._targets(grid, chain.classifier)
            for target, radius, seed in product(targets, radii, grid.seeds):
                budget = Budget.parse(chain.norm, radius)
                node = self._measure(grid, target, budget, seed, LEARNED, fitted)
                self._cell(grid, target, budget, place, seed, node, fitted, chain)

    def _targets(self, grid: Grid, name: str) -> list[str]:
        """The classifiers that a fit on this one is measured on."""
        targets = [name if each == OWN else each for each in grid.targets or [OWN]]
        for target in targets:
            if self.models[target].data.name != self.models[name].data.name:
                raise SpecError(
                    f"`targets` must have the data of what is fitted on, got {target!r} for {name!r}."
                    " Give each data set a grid of its own."
                )
        return list(dict.fromkeys(targets))

    def _source_cells(self, grid: Grid) -> None:
        radii = grid.radii or grid.fit_radii or []
        for name, text, norm, radius, seed in product(
            self._names(grid), grid.sources, grid.norms, radii, grid.seeds
        ):
            budget = Budget.parse(norm, radius)
            node = self._measure(grid, name, budget, seed, text, None)
            self._cell(grid, name, budget, {"source": text}, seed, node)

    def _cell(
        self,
        grid: Grid,
        name: str,
        budget: Budget,
        place: dict[str, Any],
        seed: int,
        node: Node,
        fitted: Node | None = None,
        chain: Chain | None = None,
    ) -> None:
        model = self.models[name]
        known = {
            **dict.fromkeys(AXES, ""),
            **place,
            "grid": grid.name,
            "data": model.data.name,
            "classifier": self.models.label(name if chain is None else chain.classifier),
            "target": self.models.label(name),
            "group": model.entry.group,
            "norm": budget.norm.name,
            "radius": budget.radius_text,
        }
        clean = self.models.clean(name).hash
        fit = None if fitted is None else fitted.hash
        fit_seed = None if chain is None else chain.seed
        shared = "" if chain is None else chain.digest(node.determined_by["draws"])
        self.graph.cells.append(Cell(known, seed, fit_seed, node.hash, clean, fit, shared))

    def _measure(
        self, grid: Grid, name: str, budget: Budget, seed: int, text: str, fitted: Node | None
    ) -> Node:
        model = self.models[name]
        needs = self._of_classifier(name)
        draws = grid.draws or self.spec.measure.draws
        inputs, cost, more = model.inputs["evaluate"], 1.0, 0.0
        known: dict[str, Any] = {"source": LEARNED}
        place: list[Any] | None = [budget.norm.name, budget.radius]
        if fitted is not None:
            needs["fit"] = fitted.hash
            needs |= {role: at for role, at in fitted.needs.items() if role == "features"}
        else:
            (source,) = parse_sources(text, budget)
            known = {"source": type(source).__name__, "options": all_options(source)}
            place = place if source.budget is not None else None
            draws, cost = source.fixed_draws or draws, source.cost
            if isinstance(source, Universal):
                more = source.epochs * model.inputs["fit"] * PASSES_OF_A_CALL
        return self._add(
            Node(
                kind="measure",
                label=f"measure {name}, {text}, {budget}, seed {seed}"
                + (f" of {fitted.label}" if fitted else ""),
                determined_by={
                    **self.common,
                    **known,
                    "budget": place,
                    "draws": draws,
                    "seed": seed,
                    "confidence": self.spec.measure.confidence,
                },
                needs=needs,
                how={
                    **self.run,
                    **model.how_all,
                    "text": text,
                    "stage": fitted.determined_by["stage"] if fitted else None,
                },
                passes=inputs * draws * cost + more,
                speed=model.speed,
            )
        )
