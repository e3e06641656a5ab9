"""From a study to its graph: what is computed, once each, and what needs what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from nppr.assessment.load import train_settings
from nppr.budget import Budget
from nppr.classifiers import usable_device
from nppr.classifiers.training import TrainSettings, image_shape
from nppr.errors import NpprError, SpecError
from nppr.noise.family import Dependency
from nppr.search.search_settings import SearchSettings, Stage
from nppr.sources import NPPR, parse_sources
from nppr.study.chains import Chain, Member, closed, nearest
from nppr.study.graph import Cell, Graph, Node, digest_of
from nppr.study.resources import (
    ClassifierSource,
    DataSource,
    identify_classifier,
    identify_data,
    load_source,
    missing_classifier,
    missing_data,
    names_code,
    speed_of,
)
from nppr.study.study_file import AXES, OWN, ClassifierEntry, DataEntry, Grid, Study

MOST_NODES = 10_000
PASSES_PER_CALL = 3.5
"""Forward passes that a forward and backward pass takes, with the selection that comes with it."""

PASSES_PER_TRAINING_STEP = 3.0
ABSENT = "absent"
ABSENT_SHAPE = (3, 32, 32)
"""Of images that are not here."""


@dataclass(frozen=True)
class Task:
    """What a process needs to do a node; a kind of node uses what it needs."""

    data: DataSource
    classifier: ClassifierSource
    device: str | None
    threads: int
    quantise: bool
    confidence: float
    seed: int = 0
    draws: int = 0
    budget: tuple[str, float] | None = None
    source: str | None = None
    features: ClassifierSource | None = None
    search: SearchSettings | None = None
    stage: Stage | None = None
    fit_inputs: int = 0
    training: tuple[str, TrainSettings] | None = None


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
    planner.build()
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
    """A classifier with its data: what determines it, how to load it, how large the splits are."""

    entry: ClassifierEntry
    data: DataSource
    inputs: Mapping[str, int]
    determined_by: Mapping[str, object]
    source: ClassifierSource
    train: Node | None
    speed: float | None


class _Planner:
    def __init__(self, study: Study, device: str | None, most: int | None, run_code: bool) -> None:
        self.study, self.most, self.run_code = study, most, run_code
        self.graph = Graph()
        place = usable_device(device).type
        self.device = device or place
        measure = study.measure
        self.common = {"device": place, "quantise": measure.quantise, "threads": measure.threads}
        self.data = {each.name: self._find_data(each) for each in study.data}
        self.models = {each.name: self._find_model(each) for each in study.classifiers}
        self.fitted: dict[tuple[Chain, Member], Node] = {}

    def build(self) -> None:
        """All nodes and cells, grid by grid."""
        chains: dict[Chain, set[Member]] = {}
        for grid in self.study.grids:
            for chain, member in self._wishes(grid):
                chains.setdefault(chain, set()).add(member)
        for chain, wanted in chains.items():
            members = sorted(wanted) if chain.fit.is_paper else closed(wanted)
            for member in members:
                parents = [] if chain.fit.is_paper else nearest(member, members)
                before = [self.fitted[chain, parent] for parent in parents]
                self.fitted[chain, member] = self._fit(chain, member, before)
        for grid in self.study.grids:
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
        known: Mapping[str, object] = {"classifier": f"{ABSENT} {entry.name}"}
        source = ClassifierSource(entry.load_options())
        inputs, speed, train = self._sizes(data), None, None
        if data.identity is not None:
            speed = speed_of(entry, data)
        if entry.training is not None:
            train = self._train(entry, data, inputs, speed)
            known = source.options.model_dump(mode="json", exclude={"weights"})
            source = ClassifierSource(source.options, trained=train.hash)
        elif absent is None and data.identity is not None:
            known, source = identify_classifier(entry, data, run_code=self.run_code)
        return _Model(entry, data, inputs, known, source, train, speed)

    def _sizes(self, data: DataSource) -> dict[str, int]:
        """Inputs of every split; where the data are not here, those expected."""
        if data.identity is not None:
            loaded = load_source(data)
            return {
                each.kind.name: len(each) for each in (loaded.fit, loaded.select, loaded.evaluate)
            }
        entry = data.entry
        known = entry.expected.model_dump() if entry.expected else {}
        limits = {
            "fit": entry.fit_inputs,
            "select": entry.select_inputs,
            "evaluate": entry.inputs,
        }
        return {
            split: min(known.get(split, limit or 1), limit or known.get(split, 1))
            for split, limit in limits.items()
        }

    def _train(
        self,
        entry: ClassifierEntry,
        data: DataSource,
        inputs: Mapping[str, int],
        speed: float | None,
    ) -> Node:
        assert entry.training is not None
        shape = image_shape(load_source(data)) if data.identity else ABSENT_SHAPE
        try:
            settings = train_settings(
                entry.model, shape, entry.training,
                stem=entry.stem, threads=self.study.measure.threads,
            )  # fmt: skip
        except NpprError as error:
            raise SpecError(f"{error} (In the training of {entry.name!r}.)") from error
        images = settings.epochs * (inputs["fit"] + inputs["select"])
        steps = settings.adversary.steps if settings.adversary else 0
        task = self._task(data, ClassifierSource(entry.load_options()))
        return self._add(
            Node(
                kind="train",
                label=f"train {entry.name}",
                determined_by={
                    "device": self.common["device"],
                    "model": entry.model,
                    "training": settings.described(),
                    "data": data.identity or f"{ABSENT} {data.entry.name}",
                },
                needs={},
                task=replace(task, training=(entry.model, settings)),
                passes=images * PASSES_PER_TRAINING_STEP * (1 + steps),
                calls=images * (1 + steps),
                speed=speed,
            )
        )

    def _task(self, data: DataSource, classifier: ClassifierSource) -> Task:
        measure = self.study.measure
        return Task(
            data, classifier, self.device, measure.threads, measure.quantise, measure.confidence
        )

    def _label(self, name: str) -> str:
        return self.models[name].entry.label or name

    def _names(self, grid: Grid) -> list[str]:
        return grid.classifiers or list(self.models)

    def _wishes(self, grid: Grid) -> Iterator[tuple[Chain, Member]]:
        members = [
            Member(floor, components, Dependency(dependency))
            for floor, dependency, components in product(
                grid.floors, grid.dependencies, grid.components
            )
        ]
        for chain in self._chains(grid) if members else ():
            yield from ((chain, member) for member in members)

    def _chains(self, grid: Grid) -> Iterator[Chain]:
        covariances: Sequence[str | None] = grid.covariances or [None]
        upsamplers: Sequence[str | None] = grid.upsamplers or [None]
        passes: Sequence[int | None] = grid.epochs or [None]
        for name, features, norm, radius, covariance, upsampler, loss, epochs, seed in product(
            self._names(grid),
            grid.feature_models or [OWN],
            grid.norms,
            grid.fit_radii or grid.radii or [],
            covariances,
            upsamplers,
            grid.losses,
            passes,
            grid.fit_seeds,
        ):
            own = self.models[name].entry.feature_model or name
            yield Chain(
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

    def _classifier_part(self, name: str) -> tuple[dict[str, object], dict[str, str]]:
        """What of a node is determined by a classifier and its data, and the node that trains it."""
        model = self.models[name]
        identity = model.data.identity or f"{ABSENT} {model.data.entry.name}"
        known = {**self.common, "classifier": model.determined_by, "data": identity}
        return known, {} if model.train is None else {"train": model.train.hash}

    def _fit(self, chain: Chain, member: Member, parents: list[Node]) -> Node:
        model = self.models[chain.classifier]
        settings, stage = chain.stage(member, model.inputs["fit"], first=not parents)
        known, needs = self._classifier_part(chain.classifier)
        features = None
        if member.dependency.sees_input and chain.feature_model != chain.classifier:
            features = self.models[chain.feature_model].source
            seen, trained = self._classifier_part(chain.feature_model)
            known["features"] = seen["classifier"]
            needs |= {f"features-{role}": hash_ for role, hash_ in trained.items()}
        needs |= {f"parent-{number}": each.hash for number, each in enumerate(parents)}
        calls = stage.steps * stage.recipe.inputs * stage.recipe.draws
        budget = Budget.parse(chain.norm, chain.radius)
        task = replace(
            self._task(model.data, model.source),
            budget=(chain.norm, chain.radius),
            seed=chain.seed,
            search=settings,
            stage=stage,
            fit_inputs=model.inputs["fit"],
            features=features,
        )
        return self._add(
            Node(
                kind="fit",
                label=f"fit {chain.classifier}, {budget}, {stage.family.upsampler}, {stage.name}"
                + (f", seed {chain.seed}" if chain.seed else ""),
                determined_by={
                    **known,
                    "budget": [chain.norm, chain.radius],
                    "family": asdict(stage.family),
                    "recipe": asdict(stage.recipe),
                    "steps": stage.steps,
                    "stage": stage.name,
                    "walks": settings.walks,
                    "seed": chain.seed,
                },
                needs=needs,
                task=task,
                passes=calls * PASSES_PER_CALL,
                calls=calls,
                speed=model.speed,
            )
        )

    def _learned_cells(self, grid: Grid) -> None:
        for chain, member in self._wishes(grid):
            fitted = self.fitted[chain, member]
            radii = grid.radii if grid.fit_radii and grid.radii else [chain.radius]
            family = chain.family(member)
            place: dict[str, str | int | float] = {
                "source": NPPR,
                "dependency": member.dependency.value,
                "components": member.components,
                "covariance": family.covariance,
                "upsampler": family.upsampler,
                "loss": chain.loss,
                "feature_model": self._label(chain.feature_model),
                "floor": member.floor,
                "epochs": chain.epochs if chain.epochs is not None else "",
                "fit_radius": Budget.parse(chain.norm, chain.radius).radius_text,
            }
            targets = self._targets(grid, chain.classifier)
            for target, radius, seed in product(targets, radii, grid.seeds):
                budget = Budget.parse(chain.norm, radius)
                node = self._measure(grid, target, budget, seed, NPPR, fitted)
                self._cell(grid, target, budget, place, seed, node, fitted, chain)

    def _targets(self, grid: Grid, name: str) -> list[str]:
        """The classifiers that a fit on this one is measured on."""
        targets = [name if each == OWN else each for each in grid.targets or [OWN]]
        for target in targets:
            if self.models[target].data.entry.name != self.models[name].data.entry.name:
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
        place: Mapping[str, str | int | float],
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
            "data": model.data.entry.name,
            "classifier": self._label(name if chain is None else chain.classifier),
            "target": self._label(name),
            "group": model.entry.group,
            "norm": budget.norm.name,
            "radius": budget.radius_text,
        }
        assert isinstance(node.task, Task)
        shared = "" if chain is None else chain.digest(node.task.draws)
        fit, fit_seed = fitted.hash if fitted else None, chain.seed if chain else None
        clean = digest_of(self._classifier_part(name))
        self.graph.cells.append(Cell(known, seed, fit_seed, node.hash, fit, clean, shared))

    def _measure(
        self, grid: Grid, name: str, budget: Budget, seed: int, text: str, fitted: Node | None
    ) -> Node:
        model = self.models[name]
        known, needs = self._classifier_part(name)
        draws, inputs = grid.draws or self.study.measure.draws, model.inputs["evaluate"]
        cost, more = 1.0, 0.0
        place: tuple[str, float] | None = (budget.norm.name, budget.radius)
        features = None
        if fitted is not None:
            assert isinstance(fitted.task, Task)
            features = fitted.task.features
            needs["fit"] = fitted.hash
            needs |= {role: at for role, at in fitted.needs.items() if role.startswith("features")}
            known["source"] = NPPR
        else:
            (source,) = parse_sources(text, budget)
            shape = load_source(model.data).shape if model.data.identity else ABSENT_SHAPE
            known |= {"source": source.kind, "options": source.options(shape)}
            place = place if source.budget is not None else None
            draws, cost = source.fixed_draws or draws, source.cost
            more = source.fit_passes(model.inputs["fit"])
        confidence = self.study.measure.confidence
        task = replace(
            self._task(model.data, model.source),
            budget=place,
            seed=seed,
            draws=draws,
            source=None if fitted else text,
            features=features,
        )
        return self._add(
            Node(
                kind="measure",
                label=f"measure {name}, {text}, {budget}, seed {seed}"
                + (f" of {fitted.label}" if fitted else ""),
                determined_by={
                    **known,
                    "budget": list(place) if place else None,
                    "draws": draws,
                    "seed": seed,
                    "confidence": confidence,
                },
                needs=needs,
                task=task,
                passes=inputs * draws * cost + more,
                speed=model.speed,
            )
        )
