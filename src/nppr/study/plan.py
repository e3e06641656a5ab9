"""From a study to its graph: every fit and measurement once, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from nppr.core.budget import Budget
from nppr.errors import NpprError, SpecError
from nppr.formats import names_code
from nppr.models import usable_device
from nppr.noise.rungs import Dependency
from nppr.run.resolve import choose_train_settings
from nppr.settings import Measure
from nppr.sources import NPPR, parse_sources
from nppr.study.graph import (
    Chain,
    FitNode,
    Graph,
    MeasureNode,
    Member,
    Node,
    StudyCell,
    TrainNode,
    add_walked,
    find_parents,
)
from nppr.study.resources import (
    ClassifierSource,
    DataSource,
    digest_of,
    identify_classifier,
    identify_data,
    load_source,
    measure_speed,
    missing_classifier,
)
from nppr.study.study_file import OWN, ClassifierEntry, Grid, Place, Study
from nppr.train import image_shape

MOST_NODES = 10_000
"""Nodes of a study that runs without --yes."""

PASSES_PER_FIT_CALL = 3.5
"""Forward passes that take as long as one call of a fit, with the selection that belongs to it."""

PASSES_PER_TRAINING_STEP = 3.0


def plan(
    study: Study,
    *,
    device: str | None = None,
    most: int | None = MOST_NODES,
    run_code: bool = False,
) -> Graph:
    """Return the graph of a study; raise `SpecError` for more than `most` nodes.

    Models that Python code makes are loaded only with `run_code`.
    """
    planner = _Planner(study, device, most, run_code)
    planner.add_fits()
    for grid in study.grids:
        planner.add_learned_cells(grid)
        planner.add_source_cells(grid)
    return planner.graph


def require_code_allowed(study: Study, *, run_code: bool) -> None:
    """Raise `SpecError` if a study names Python code that must not be run."""
    for entry in study.classifiers:
        if names_code(entry.model) and not run_code:
            raise SpecError(
                f"`run-code` must be given: the study runs Python code, {entry.model!r} of classifier"
                f" {entry.name!r}. Read that code, then add --run-code."
            )


@dataclass(frozen=True)
class _Model:
    """A classifier of the study with its data, and its forward passes per second if they are known."""

    entry: ClassifierEntry
    data: DataSource
    source: ClassifierSource
    speed: float | None

    @property
    def label(self) -> str:
        return self.entry.label or self.entry.name


class _Planner:
    def __init__(self, study: Study, device: str | None, most: int | None, run_code: bool) -> None:
        self.study, self.most, self.run_code = study, most, run_code
        kind = usable_device(device).type
        self.device = device or kind
        self.data = {each.name: identify_data(each) for each in study.data}
        absent = [each.entry for each in self.data.values() if not each.is_here]
        self.graph = Graph(missing=[f"data {each.name!r} at {each.spec}" for each in absent])
        self.models = {each.name: self._find_model(each) for each in study.classifiers}
        self.fits: dict[tuple[Chain, Member], Node] = {}

    def add_fits(self) -> None:
        """Add the fits of all grids, each once, smaller families first."""
        chains: dict[Chain, set[Member]] = {}
        for grid in self.study.grids:
            for chain, member in self._wanted_fits(grid):
                chains.setdefault(chain, set()).add(member.fitted)
        for chain, wanted in chains.items():
            members = sorted(wanted) if chain.fit.is_paper else add_walked(wanted)
            for member in members:
                parents = [] if chain.fit.is_paper else find_parents(member, members)
                hashes = tuple(self.fits[chain, parent].hash for parent in parents)
                self.fits[chain, member] = self._add_fit(chain, member, hashes)

    def add_learned_cells(self, grid: Grid) -> None:
        """Add measurements of fitted noise at every radius, on every target, with every seed."""
        draws = grid.draws or self.study.measure.draws
        for chain, member in self._wanted_fits(grid):
            radii = grid.radii if grid.fit_radii and grid.radii else [chain.radius]
            family, fit = chain.family(member.fitted), self.fits[chain, member.fitted]
            calls = 0 if member.dependency.is_fitted else chain.fit.per_input_calls
            fitted = f"{', per-input from' if calls else ' of'} {fit.label}"
            place = Place(
                source=NPPR,
                classifier=self.models[chain.classifier].label,
                dependency=member.dependency.value,
                components=member.components,
                covariance=family.covariance,
                upsampler=family.upsampler,
                loss=chain.loss,
                feature_model=self.models[chain.feature_model].label,
                floor=member.floor,
                epochs="" if chain.epochs is None else chain.epochs,
                fit_radius=Budget.parse(chain.norm, chain.radius).radius_text,
            )
            targets = self._targets(grid, chain.classifier)
            for target, radius, seed in product(targets, radii, grid.seeds):
                model, budget = self.models[target], Budget.parse(chain.norm, radius)
                node = MeasureNode(
                    **self._noise_settings(model, chain, member.fitted),
                    label=f"measure {target}, {NPPR}, {budget}, seed {seed}{fitted}",
                    passes=model.data.sizes.evaluate * (draws + calls * PASSES_PER_FIT_CALL),
                    budget=budget,
                    settings=self._measure_settings(draws, seed),
                    fit=fit.hash,
                    per_input_calls=calls,
                )
                self._add_cell(grid, model, node, budget, place, chain)

    def add_source_cells(self, grid: Grid) -> None:
        """Add measurements of the sources that are not learned."""
        radii = grid.radii or grid.fit_radii or []
        for name, text, norm, radius, seed in product(
            self._classifiers(grid), grid.sources, grid.norms, radii, grid.seeds
        ):
            model, budget = self.models[name], Budget.parse(norm, radius)
            (source,) = parse_sources(text, budget)
            draws = source.fixed_draws or grid.draws or self.study.measure.draws
            sizes = model.data.sizes
            node = MeasureNode(
                **self._noise_settings(model),
                label=f"measure {name}, {text}, {budget}, seed {seed}",
                passes=sizes.evaluate * draws * source.cost + source.fit_passes(sizes.fit),
                budget=None if source.budget is None else budget,
                settings=self._measure_settings(draws, seed),
                source=source,
            )
            place = Place(source=text, classifier=model.label)
            self._add_cell(grid, model, node, budget, place)

    def _add(self, node: Node) -> Node:
        """Return the node of the graph with the hash of this one, which is added if there is none."""
        added = self.graph.nodes.setdefault(node.hash, node)
        if self.most is not None and len(self.graph.nodes) > self.most:
            raise SpecError(
                f"`grids` must make at most {self.most:,} nodes, got more. Add --yes to run them"
                " all, or make the grids smaller."
            )
        return added

    def _find_model(self, entry: ClassifierEntry) -> _Model:
        data = self.data[entry.data or self.study.data[0].name]
        if (absent := missing_classifier(entry)) is not None:
            self.graph.missing.append(absent)
        source = ClassifierSource(entry.network, f"absent {entry.name}")
        model = _Model(entry, data, source, measure_speed(entry, data))
        if entry.training is not None:
            trained = self._add_training(model).hash
            known = entry.network.model_dump(mode="json", exclude={"weights"})
            source = replace(source, identity=digest_of([known, trained]), trained=trained)
        elif absent is None and data.is_here:
            source = identify_classifier(entry, data, run_code=self.run_code)
        return replace(model, source=source)

    def _add_training(self, model: _Model) -> Node:
        entry, data = model.entry, model.data
        assert entry.training is not None
        shape = image_shape(load_source(data)) if data.is_here else data.shape
        threads = self.study.measure.threads
        try:
            settings = choose_train_settings(
                entry.model, shape, entry.training, stem=entry.stem, threads=threads
            )
        except NpprError as error:
            raise SpecError(f"{error} (In the training of {entry.name!r}.)") from error
        images = settings.epochs * (data.sizes.fit + data.sizes.select)
        calls = images * (1 + (settings.adversary.steps if settings.adversary else 0))
        node = TrainNode(
            **self._shared(model),
            label=f"train {entry.name}",
            passes=calls * PASSES_PER_TRAINING_STEP,
            calls=calls,
            settings=settings,
        )
        return self._add(node)

    def _classifiers(self, grid: Grid) -> list[str]:
        return grid.classifiers or list(self.models)

    def _targets(self, grid: Grid, name: str) -> list[str]:
        """Return the classifiers on which the noise fitted on this one is measured."""
        targets = [name if each == OWN else each for each in grid.targets or [OWN]]
        for target in targets:
            if self.models[target].data != self.models[name].data:
                raise SpecError(
                    f"`targets` must have the data of {name!r}, which is fitted on, got {target!r}."
                    " Give each data set a separate grid."
                )
        return list(dict.fromkeys(targets))

    def _wanted_fits(self, grid: Grid) -> Iterator[tuple[Chain, Member]]:
        """Yield the fits that a grid names."""
        none: list[Any] = [None]
        for name, features, norm, radius, covariance, upsampler, loss, epochs, seed in product(
            self._classifiers(grid) if grid.dependencies else (),
            grid.feature_models or [OWN],
            grid.norms,
            grid.fit_radii or grid.radii or [],
            grid.covariances or none,
            grid.upsamplers or none,
            grid.losses,
            grid.epochs or none,
            grid.fit_seeds,
        ):
            own = self.models[name].entry.feature_model or name
            chain = Chain(
                classifier=name,
                feature_model=own if features == OWN else features,
                norm=norm,
                radius=Budget.parse(norm, radius).radius,
                covariance=covariance,
                upsampler=upsampler,
                loss=loss,
                epochs=epochs,
                seed=seed,
                fit=grid.fit or self.study.fit,
            )
            for floor, dependency, components in product(
                grid.floors, grid.dependencies, grid.components
            ):
                yield chain, Member(floor, components, Dependency(dependency))

    def _shared(self, model: _Model) -> dict[str, Any]:
        """Return what all nodes of a model have in common."""
        source, speed = model.source, model.speed
        return {"data": model.data, "classifier": source, "device": self.device, "speed": speed}

    def _noise_settings(
        self, model: _Model, chain: Chain | None = None, member: Member | None = None
    ) -> dict[str, Any]:
        """Return what the noise nodes of a model have in common, for fitted noise or any other.

        On every target, noise sees the features of the model that it was fitted with.
        """
        features = None
        if chain and member and member.dependency.sees_input:
            own = chain.feature_model == chain.classifier == model.entry.name
            features = None if own else self.models[chain.feature_model].source
        known = self.study.measure
        noise = {"features": features, "quantise": known.quantise, "threads": known.threads}
        return self._shared(model) | noise

    def _measure_settings(self, draws: int, seed: int) -> Measure:
        known = self.study.measure
        return Measure(draws=draws, seed=seed, confidence=known.confidence, quantise=known.quantise)

    def _add_fit(self, chain: Chain, member: Member, parents: tuple[str, ...]) -> Node:
        model, budget = self.models[chain.classifier], Budget.parse(chain.norm, chain.radius)
        settings, stage = chain.stage(member, model.data.sizes.fit, first=not parents)
        label = f"fit {chain.classifier}, {budget}, {stage.family.upsampler}, {stage.name}"
        node = FitNode(
            **self._noise_settings(model, chain, member),
            label=label + (f", seed {chain.seed}" if chain.seed else ""),
            passes=stage.calls * PASSES_PER_FIT_CALL,
            calls=stage.calls,
            budget=budget,
            seed=chain.seed,
            search=settings,
            stage=stage,
            parents=parents,
        )
        return self._add(node)

    def _add_cell(
        self,
        grid: Grid,
        model: _Model,
        node: MeasureNode,
        budget: Budget,
        place: Place,
        chain: Chain | None = None,
    ) -> None:
        """Add a measurement and its cell; `place` has the axes of what is measured."""
        seed, draws, measure = node.settings.seed, node.settings.draws or 0, self._add(node).hash
        place = replace(
            place,
            grid=grid.name,
            data=model.data.entry.name,
            target=model.label,
            group=model.entry.group,
            norm=budget.spec,
            radius=budget.radius_text,
        )
        clean = digest_of([model.data.identity, model.source.identity])
        self.graph.cells.append(StudyCell(place, seed, measure, clean, draws, node.fit, chain))
