"""From a study to its graph: what is computed, once each, and what needs what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from nppr.core.budget import Budget
from nppr.errors import NpprError, SpecError
from nppr.formats import names_code
from nppr.models import usable_device
from nppr.noise.rungs import Dependency
from nppr.run.resolve import train_settings
from nppr.settings import Measure
from nppr.sources import NPPR, parse_sources
from nppr.study.chains import Chain, Member, closed, nearest
from nppr.study.graph import Cell, FitTask, Graph, MeasureTask, Node, TrainTask
from nppr.study.resources import (
    ClassifierSource,
    DataSource,
    digest_of,
    identify_classifier,
    identify_data,
    load_source,
    missing_classifier,
    missing_data,
    speed_of,
)
from nppr.study.study_file import OWN, ClassifierEntry, DataEntry, Grid, Place, Study
from nppr.train import image_shape

MOST_NODES = 10_000
PASSES_PER_CALL = 3.5
"""Forward passes that a forward and backward pass takes, with the selection that comes with it."""

PASSES_PER_TRAINING_STEP = 3.0
ABSENT_SHAPE = (3, 32, 32)
"""Of images that are not here."""

NO_BUDGET = Budget.linf(1.0)
"""For corruptions, which ignore it."""


def plan(
    study: Study,
    *,
    device: str | None = None,
    most: int | None = MOST_NODES,
    run_code: bool = False,
) -> Graph:
    """The graph of a study; more than `most` nodes are an error.

    Models that are made by Python code are loaded only with `run_code`.
    """
    planner = _Planner(study, device, most, run_code)
    planner.add_fits()
    for grid in study.grids:
        planner.add_learned_cells(grid)
        planner.add_source_cells(grid)
    return planner.graph


def require_code_allowed(study: Study, *, run_code: bool) -> None:
    """Raise `SpecError` where a study names Python code and running it is not allowed."""
    for entry in study.classifiers:
        if names_code(entry.model) and not run_code:
            raise SpecError(
                f"`run-code` must be given: the study runs Python code, {entry.model!r} of classifier"
                f" {entry.name!r}. Read that code, then add --run-code."
            )


@dataclass(frozen=True)
class _Model:
    """A classifier with its data.

    `known` and `needs` are what it contributes to the identity of each of its nodes; `inputs` are the
    sizes of the splits.
    """

    entry: ClassifierEntry
    data: DataSource
    inputs: Mapping[str, int]
    source: ClassifierSource
    known: Mapping[str, object]
    needs: Mapping[str, str]
    speed: float | None

    @property
    def label(self) -> str:
        return self.entry.label or self.entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        return load_source(self.data).shape if self.data.identity else ABSENT_SHAPE


class _Planner:
    def __init__(self, study: Study, device: str | None, most: int | None, run_code: bool) -> None:
        self.study, self.most, self.run_code = study, most, run_code
        self.graph = Graph()
        self.device_type = usable_device(device).type
        self.device = device or self.device_type
        self.data = {each.name: self._find_data(each) for each in study.data}
        self.models = {each.name: self._find_model(each) for each in study.classifiers}
        self.fitted: dict[tuple[Chain, Member], Node] = {}

    def add_fits(self) -> None:
        """The fits of all grids, each once, smaller families first."""
        chains: dict[Chain, set[Member]] = {}
        for grid in self.study.grids:
            for chain, member in self._wishes(grid):
                chains.setdefault(chain, set()).add(member.fitted)
        for chain, wanted in chains.items():
            members = sorted(wanted) if chain.fit.is_paper else closed(wanted)
            for member in members:
                parents = [] if chain.fit.is_paper else nearest(member, members)
                before = [self.fitted[chain, parent].hash for parent in parents]
                self.fitted[chain, member] = self._fit(chain, member, before)

    def add_learned_cells(self, grid: Grid) -> None:
        """Measurements of what is fitted, at every radius, on every target, with every seed."""
        for chain, member in self._wishes(grid):
            radii = grid.radii if grid.fit_radii and grid.radii else [chain.radius]
            family = chain.family(member.fitted)
            place = Place(
                source=NPPR,
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
                budget = Budget.parse(chain.norm, radius)
                self._measure(grid, target, budget, seed, place, (chain, member))

    def add_source_cells(self, grid: Grid) -> None:
        """Measurements of the sources that are not learned."""
        radii = grid.radii or grid.fit_radii or []
        for name, text, norm, radius, seed in product(
            self._names(grid), grid.sources, grid.norms, radii, grid.seeds
        ):
            self._measure(grid, name, Budget.parse(norm, radius), seed, Place(source=text))

    def _add(self, node: Node) -> Node:
        """The node, or the one of the same hash that is there already."""
        added = self.graph.nodes.setdefault(node.hash, node)
        if self.most is not None and len(self.graph.nodes) > self.most:
            raise SpecError(
                f"`grids` must make at most {self.most:,} nodes, got more. Add --yes to run them"
                " all, or make the grids smaller."
            )
        return added

    def _find_data(self, entry: DataEntry) -> DataSource:
        absent = missing_data(entry)
        if absent is None:
            return identify_data(entry)
        self.graph.missing.append(absent)
        return DataSource(entry)

    def _find_model(self, entry: ClassifierEntry) -> _Model:
        data = self.data[entry.data or self.study.data[0].name]
        absent = missing_classifier(entry)
        if absent is not None:
            self.graph.missing.append(absent)
        measure = self.study.measure
        known: dict[str, object] = {
            "device": self.device_type,
            "quantise": measure.quantise,
            "threads": measure.threads,
            "classifier": f"absent {entry.name}",
            "data": data.identity or f"absent {data.entry.name}",
        }
        speed = None if data.identity is None else speed_of(entry, data)
        source = ClassifierSource(entry.load_options())
        model = _Model(entry, data, _sizes(data), source, known, {}, speed)
        if entry.training is not None:
            train = self._train(model).hash
            known["classifier"] = source.options.model_dump(mode="json", exclude={"weights"})
            return replace(model, source=replace(source, trained=train), needs={"train": train})
        if absent is None and data.identity is not None:
            known["classifier"], source = identify_classifier(entry, data, run_code=self.run_code)
        return replace(model, source=source)

    def _train(self, model: _Model) -> Node:
        entry, data = model.entry, model.data
        assert entry.training is not None
        shape = image_shape(load_source(data)) if data.identity else ABSENT_SHAPE
        threads = self.study.measure.threads
        try:
            settings = train_settings(
                entry.model, shape, entry.training, stem=entry.stem, threads=threads
            )
        except NpprError as error:
            raise SpecError(f"{error} (In the training of {entry.name!r}.)") from error
        images = settings.epochs * (model.inputs["fit"] + model.inputs["select"])
        steps = settings.adversary.steps if settings.adversary else 0
        return self._add(
            Node(
                label=f"train {entry.name}",
                determined_by={
                    "device": self.device_type,
                    "model": entry.model,
                    "training": settings.described(),
                    "data": model.known["data"],
                },
                needs={},
                task=TrainTask(data, model.source, self.device, entry.model, settings),
                passes=images * PASSES_PER_TRAINING_STEP * (1 + steps),
                calls=images * (1 + steps),
                speed=model.speed,
            )
        )

    def _names(self, grid: Grid) -> list[str]:
        return grid.classifiers or list(self.models)

    def _targets(self, grid: Grid, name: str) -> list[str]:
        """The classifiers that a fit on this one is measured on."""
        targets = [name if each == OWN else each for each in grid.targets or [OWN]]
        for target in targets:
            if self.models[target].data != self.models[name].data:
                raise SpecError(
                    f"`targets` must have the data of {name!r}, which is fitted on, got {target!r}."
                    " Give each data set a grid of its own."
                )
        return list(dict.fromkeys(targets))

    def _wishes(self, grid: Grid) -> Iterator[tuple[Chain, Member]]:
        """What a grid asks to be fitted."""
        none: list[Any] = [None]
        for name, features, norm, radius, covariance, upsampler, loss, epochs, seed in product(
            self._names(grid) if grid.dependencies else (),
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

    def _features(self, chain: Chain, member: Member, target: str) -> _Model | None:
        """The model whose features the noise sees on a target, if it is another one.

        Noise sees the features that it was fitted with, whatever it is measured on.
        """
        own = chain.feature_model == chain.classifier == target
        return (
            self.models[chain.feature_model] if member.dependency.sees_input and not own else None
        )

    def _fit(self, chain: Chain, member: Member, parents: list[str]) -> Node:
        model = self.models[chain.classifier]
        settings, stage = chain.stage(member, model.inputs["fit"], first=not parents)
        features = self._features(chain, member, chain.classifier)
        budget = Budget.parse(chain.norm, chain.radius)
        measure = self.study.measure
        return self._add(
            Node(
                label=f"fit {chain.classifier}, {budget}, {stage.family.upsampler}, {stage.name}"
                + (f", seed {chain.seed}" if chain.seed else ""),
                determined_by={
                    **model.known,
                    **({"features": features.known["classifier"]} if features else {}),
                    "budget": [chain.norm, chain.radius],
                    "family": asdict(stage.family),
                    "recipe": asdict(stage.recipe),
                    "steps": stage.steps,
                    "stage": stage.name,
                    "walks": settings.walks,
                    "seed": chain.seed,
                },
                needs={
                    **_needs(model, features),
                    **{f"parent-{number}": parent for number, parent in enumerate(parents)},
                },
                task=FitTask(
                    model.data,
                    model.source,
                    self.device,
                    features=features.source if features else None,
                    budget=budget,
                    seed=chain.seed,
                    quantise=measure.quantise,
                    search=settings,
                    stage=stage,
                    fit_inputs=model.inputs["fit"],
                ),
                passes=stage.calls * PASSES_PER_CALL,
                calls=stage.calls,
                speed=model.speed,
            )
        )

    def _measure(
        self,
        grid: Grid,
        name: str,
        budget: Budget,
        seed: int,
        place: Place,
        learned: tuple[Chain, Member] | None = None,
    ) -> None:
        """Add a measurement and its cell; `place` states what is measured, `learned` of which fit."""
        model, measure = self.models[name], self.study.measure
        chain, fitted, features, own = None, None, None, 0
        draws, cost, more = grid.draws or measure.draws, 1.0, 0.0
        known: dict[str, object] = {"source": NPPR}
        ball: Budget | None = budget
        if learned is not None:
            chain, member = learned
            fitted = self.fitted[chain, member.fitted]
            features = self._features(chain, member.fitted, name)
            if not member.dependency.is_fitted:
                own = chain.fit.per_input_calls
                known |= {"per-input": own}
                more = float(model.inputs["evaluate"] * own * PASSES_PER_CALL)
        else:
            (source,) = parse_sources(place.source, budget)
            known = {"source": source.kind, "options": source.options(model.shape)}
            ball = budget if source.budget is not None else None
            draws, cost = source.fixed_draws or draws, source.cost
            more = source.fit_passes(model.inputs["fit"])
        node = self._add(
            Node(
                label=f"measure {name}, {place.source}, {budget}, seed {seed}"
                + (f"{', per-input from' if own else ' of'} {fitted.label}" if fitted else ""),
                determined_by={
                    **model.known,
                    **known,
                    "budget": [ball.spec, ball.radius] if ball else None,
                    "draws": draws,
                    "seed": seed,
                    "confidence": measure.confidence,
                },
                needs=_needs(model, features) | ({"fit": fitted.hash} if fitted else {}),
                task=MeasureTask(
                    model.data,
                    model.source,
                    self.device,
                    features=features.source if features else None,
                    budget=ball or NO_BUDGET,
                    settings=Measure(
                        draws=draws,
                        seed=seed,
                        confidence=measure.confidence,
                        quantise=measure.quantise,
                    ),
                    source=None if fitted else place.source,
                    per_input_calls=own,
                ),
                passes=model.inputs["evaluate"] * draws * cost + more,
                speed=model.speed,
            )
        )
        self.graph.cells.append(
            Cell(
                place=replace(
                    place,
                    grid=grid.name,
                    data=model.data.entry.name,
                    classifier=self.models[chain.classifier if chain else name].label,
                    target=model.label,
                    group=model.entry.group,
                    norm=budget.spec,
                    radius=budget.radius_text,
                ),
                seed=seed,
                measure=node.hash,
                clean=digest_of([model.known, model.needs]),
                draws=draws,
                fit=fitted.hash if fitted else None,
                chain=chain,
            )
        )


def _needs(model: _Model, features: _Model | None) -> dict[str, str]:
    """The nodes that train a classifier and the model that gives features."""
    of_features = features.needs if features else {}
    return {**model.needs, **{f"features-{role}": each for role, each in of_features.items()}}


def _sizes(data: DataSource) -> dict[str, int]:
    """Inputs of every split; where the data are not here, those expected."""
    if data.identity is not None:
        loaded = load_source(data)
        return {each.kind.name: len(each) for each in (loaded.fit, loaded.select, loaded.evaluate)}
    entry = data.entry
    expected = entry.expected.model_dump() if entry.expected else {}
    limits = {"fit": entry.fit_inputs, "select": entry.select_inputs, "evaluate": entry.inputs}
    return {
        split: min((each for each in (expected.get(split), limit) if each is not None), default=1)
        for split, limit in limits.items()
    }
