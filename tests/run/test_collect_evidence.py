"""What a page shows beside numbers: the worst inputs, draws of learned noise, its mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers import FAMILIES, Broken, learned_noise
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Evaluate, Metric, Tally
from nppr.data import Data, from_arrays
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.mixture import Context, Given
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STATIONARY, WHITE
from nppr.noise.upsample import Stationary
from nppr.report.evidence import Evidence, NoiseDraws, NoiseLook, Worst
from nppr.run.assessment_run import AssessmentRun
from nppr.run.collect_evidence import _describe_components, collect_draws, collect_evidence
from nppr.run.resolve import Resolved
from nppr.search.learned_noise import LearnedNoise
from nppr.settings import Measure
from nppr.sources import PGD, AutoAttack, Brightness, Clean, Gaussian, Source, Stress, Uniform
from nppr.sources.custom import CustomAttack

FEATURES = 6


@dataclass
class Case:
    """A small classifier that is correct on most of its data, with sources measured on it."""

    data: Data
    classifier: PreparedClassifier
    budget: Budget
    draws: int = 20
    seed: int = 3

    def learned(
        self,
        dependency: Dependency,
        floor: float = 0.0,
        winner: str | None = None,
    ) -> LearnedNoise:
        torch.manual_seed(0)
        family = Family(dependency, components=3, hidden_dim=8, label_dim=4, floor=floor)
        made = Distribution(family, self.shape, self.data.classes, FEATURES)
        with torch.no_grad():
            for value in made.parameters():
                value.add_(0.5 * torch.randn_like(value))
        return learned_noise(made, self.budget, winner=winner)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.data.shape
        return channels, height, width

    def clean(self) -> Tally[Evaluate]:
        everything = np.ones(len(self.data.evaluate), bool)
        return measure(Clean(), self.classifier, self.data.evaluate, clean_correct=everything)

    def tallies(self, sources: Sequence[Source]) -> dict[str, Tally[Evaluate]]:
        correct = self.clean().correct == 1
        return {
            source.name: measure(
                source,
                self.classifier,
                self.data.evaluate,
                draws=self.draws,
                seed=self.seed,
                clean_correct=correct,
            )
            for source in sources
        }

    def collected(
        self,
        sources: Sequence[Source],
        learned: Sequence[LearnedNoise],
        tallies: dict[str, Tally[Evaluate]] | None = None,
        micro_batch: int | None = None,
    ) -> Evidence:
        classifier = self.classifier
        if micro_batch:
            classifier = replace(classifier, micro_batch=micro_batch)
        everything = [*sources, *(each.source for each in learned)]
        found = self.tallies(everything) if tallies is None else tallies
        resolved = Resolved(self.data, classifier.original, prepared=classifier)
        run = AssessmentRun.open(resolved, self.budget, Measure(seed=self.seed))
        run.tallies, run.clean = found, self.clean()
        return collect_evidence(run, sources, learned)

    def drawn(
        self, learned: Sequence[LearnedNoise], micro_batch: int | None = None
    ) -> list[NoiseDraws]:
        """Draws of learned noise for the clean-correct inputs."""
        classifier = self.classifier
        if micro_batch:
            classifier = replace(classifier, micro_batch=micro_batch)
        resolved = Resolved(self.data, classifier.original, prepared=classifier)
        run = AssessmentRun.open(resolved, self.budget, Measure(seed=self.seed))
        correct = np.flatnonzero(self.clean().correct == 1)
        return list(collect_draws(run, [each.source for each in learned], correct))


def made(
    inputs: int = 60,
    shape: tuple[int, int, int] = (1, 8, 8),
    classes: int = 3,
    budget: Budget | None = None,
) -> Case:
    """Random images with the labels that the classifier gives them, but for every tenth."""
    torch.manual_seed(1)
    first, last = nn.Linear(int(np.prod(shape)), FEATURES), nn.Linear(FEATURES, classes)
    network = nn.Sequential(nn.Flatten(), first, nn.Tanh(), last)
    model = Classifier(network)
    images = torch.rand(inputs, *shape)
    with torch.no_grad():
        first.weight.mul_(3)
        if inputs > 1:
            last.bias.sub_(network(images).mean(0))
    prepared = prepare(model, images[:8], classes=classes, micro_batch=32)
    with prepared.frozen() as models, torch.no_grad():
        labels = models.original.logits(images).argmax(1)
    labels[9::10] = (labels[9::10] + 1) % classes
    named = tuple(f"class {number}" for number in range(classes))
    data = from_arrays(images, labels, shares=(0.0, 0.0), name="random", class_names=named)
    prepared = prepare(model, probe(data.evaluate), classes=classes, micro_batch=32)
    return Case(data, prepared, budget or Budget.linf(0.2))


@pytest.fixture(scope="module")
def case() -> Case:
    return made()


def same(
    one: Sequence[Worst | NoiseDraws], other: Sequence[Worst | NoiseDraws], within: float = 0.0
) -> None:
    assert one
    for before, after in zip(one, other, strict=True):
        assert isinstance(before, Worst | NoiseDraws)
        for field in fields(before):
            first, second = getattr(before, field.name), getattr(after, field.name)
            if field.name == "source":
                assert first == second
            else:
                torch.testing.assert_close(first, second, rtol=within, atol=within)


@pytest.fixture(scope="module")
def evidence(case: Case) -> Evidence:
    sources = [Gaussian(case.budget), Uniform(case.budget), PGD(case.budget)]
    learned = [case.learned(Dependency.JOINT), case.learned(Dependency.JOINT, 0.5)]
    return case.collected(sources, learned)


def looks_of(
    case: Case, structures: Sequence[str] = (WHITE, STATIONARY, ANY), micro_batch: int | None = None
) -> list[NoiseLook]:
    """The looks of Gaussian noise and of learned noise of every structure."""
    learned = []
    for structure in structures:
        torch.manual_seed(0)
        family = Family(Dependency.INDEPENDENT, structure=structure, correlation_length=3)
        made = Distribution(family, case.shape, case.data.classes, FEATURES)
        if isinstance(made.upsampler, Stationary):
            nn.init.constant_(made.upsampler.linear.weight, 1.0)  # a mean over neighbours
        learned.append(learned_noise(made, case.budget))
    found = case.collected([Gaussian(case.budget)], learned, micro_batch=micro_batch)
    return list(found.looks)


@pytest.mark.parametrize(
    ("shape", "norm"), [((3, 8, 8), "linf"), ((1, 8, 8), "l2"), ((2, 1, 32), "linf")]
)
def test_looks_show_samples_spectra_and_values(shape: tuple[int, int, int], norm: str) -> None:
    budget = Budget.linf(0.2) if norm == "linf" else Budget.l2(1.0)
    case = made(shape=shape, budget=budget)
    gaussian, white, stationary, _free = looks = looks_of(case)
    assert [each.source for each in looks] == [
        "gaussian", "nppr:independent:white", "nppr:independent:stationary", "nppr:independent"
    ]  # fmt: skip
    assert len({int(each.index) for each in looks}) == 1
    for each in looks:
        torch.testing.assert_close(each.clean, gaussian.clean)
        assert not torch.equal(each.perturbed, each.clean)
        assert float(each.sample.abs().max()) <= 1.001
        assert float(each.histogram.sum()) == pytest.approx(1, abs=1e-5)
        assert each.spectrum.shape == shape[1:]
        assert float((10**each.spectrum).mean()) == pytest.approx(1, abs=1e-3)

    def flatness(look: NoiseLook) -> float:
        return float(look.spectrum.flatten().sort().values[1:-1].std())

    assert flatness(gaussian) < 0.15
    assert flatness(white) < 0.15
    assert flatness(stationary) > 2 * flatness(white)


def test_tables_have_no_looks() -> None:
    case = made(shape=(6, 1, 1))
    assert looks_of(case, [ANY]) == []


def test_looks_do_not_depend_on_the_micro_batch(case: Case) -> None:
    for one, other in zip(looks_of(case), looks_of(case, micro_batch=5), strict=True):
        assert one.source == other.source
        for field in fields(one)[1:]:
            first, second = getattr(one, field.name), getattr(other, field.name)
            torch.testing.assert_close(first, second, rtol=2e-3, atol=2e-3)


def test_the_same_run_shows_the_same_whatever_the_micro_batch(
    case: Case, evidence: Evidence
) -> None:
    sources = [Gaussian(case.budget), Uniform(case.budget), PGD(case.budget)]
    learned = [case.learned(Dependency.JOINT), case.learned(Dependency.JOINT, 0.5)]
    tallies = case.tallies([*sources, *(each.source for each in learned)])
    same(evidence.worst, case.collected(sources, learned, tallies).worst)
    other = case.collected(sources, learned, tallies, micro_batch=5)
    same(evidence.worst, other.worst, within=2e-3)
    same(case.drawn(learned), case.drawn(learned))
    same(case.drawn(learned), case.drawn(learned, micro_batch=5), within=2e-3)


def test_learned_noise_the_strongest_attack_and_the_worst_noise_are_shown(
    case: Case, evidence: Evidence
) -> None:
    tallies = case.tallies([Gaussian(case.budget), Uniform(case.budget)])
    worst = min(tallies, key=lambda name: float(tallies[name].headline_rates.mean()))
    assert [each.source for each in evidence.worst] == ["nppr:joint", "pgd", worst]
    assert evidence.draws == (), "no figure of the page shows them"


@pytest.mark.parametrize("winner", ["gaussian", "uniform"])
def test_the_noise_that_won_is_shown(case: Case, winner: str) -> None:
    sources = [Gaussian(case.budget), Uniform(case.budget)]
    learned = case.learned(Dependency.INDEPENDENT, winner=winner)
    found = case.collected(sources, [learned])
    assert [each.source for each in found.worst] == ["nppr:independent", winner]


def test_the_worst_are_the_worst(case: Case, evidence: Evidence) -> None:
    shown = evidence.worst[2]
    tally = case.tallies([Gaussian(case.budget), Uniform(case.budget)])[shown.source]
    correct = np.flatnonzero(tally.clean_correct)
    order = sorted(correct.tolist(), key=lambda place: (tally.rates[place], place))[:12]
    split = case.data.evaluate
    assert shown.indices.tolist() == split.indices[order].tolist()
    assert shown.labels.tolist() == split.labels[order].tolist()
    np.testing.assert_allclose(shown.rates.numpy(), tally.rates[order], rtol=1e-6)


@pytest.mark.parametrize("number", range(3))
def test_images_are_what_the_classifier_was_given(
    case: Case, evidence: Evidence, number: int
) -> None:
    shown = evidence.worst[number]
    x = case.data.evaluate.images.load(shown.indices.numpy())
    assert bool(((shown.clean / 255 - x).abs() <= 0.5 / 255 + 1e-6).all())
    delta = shown.delta.float() * case.budget.radius
    assert bool((delta.abs() <= case.budget.radius * 1.001).all())
    moved = (x + delta).clamp(0, 1)
    assert bool(((shown.perturbed / 255 - moved).abs() <= 1 / 255).all())
    with case.classifier.frozen() as models, torch.no_grad():
        logits = models.original.logits(shown.perturbed / 255)
    largest, answers = logits.topk(2)
    clear = largest[:, 0] - largest[:, 1] > 0.02
    assert int(clear.sum()) > 3
    assert bool((answers[:, 0] == shown.taken_for)[clear].all())


def test_a_draw_that_fails_is_shown_where_one_is_found(case: Case, evidence: Evidence) -> None:
    doubtful = 0
    for shown in evidence.worst:
        wrong = shown.taken_for != shown.labels
        assert bool(wrong[shown.rates == 0].all())
    for shown in (each for each in evidence.worst if each.source != "pgd"):
        wrong = shown.taken_for != shown.labels
        assert not bool(wrong[shown.rates == 1].any())
        # More failures than there are draws behind the first block: some are in it.
        failures = (1 - shown.rates) * case.draws
        assert bool(wrong[failures > case.draws - 16 + 0.5].all())
        doubtful += int(((shown.rates > 0) & (failures > case.draws - 16 + 0.5)).sum())
    assert doubtful > 5


@pytest.mark.parametrize("dependency", FAMILIES)
def test_draws_are_those_of_the_measurement(case: Case, dependency: Dependency) -> None:
    learned = case.learned(dependency, 0.25)
    [draws] = case.drawn([learned])
    clean = case.clean()
    correct = set(case.data.evaluate.indices[clean.correct == 1].tolist())
    assert len(set(draws.indices.tolist())) == len(draws.indices) == len(correct)
    assert set(draws.indices.tolist()) == correct
    assert draws.many.shape == (len(correct), 8, 1, 8, 8)
    assert draws.few.shape == (3, 128, 1, 8, 8)
    assert len(set(draws.labels[:3].tolist())) == 3
    torch.testing.assert_close(draws.few[:, :8], draws.many[:3], atol=2e-3, rtol=0)
    block = DrawBlock(
        case.seed, "evaluate", tuple(draws.indices.tolist()), 0, 8, case.classifier.device
    )
    x = case.data.evaluate.images.load(draws.indices.numpy())
    with case.classifier.frozen() as models:
        drawn = learned.source.perturb(models.fast, x, draws.labels, block)
    torch.testing.assert_close(drawn / case.budget.radius, draws.many.float(), atol=2e-3, rtol=0)
    assert float(draws.many.abs().max()) <= 1
    assert float(draws.few.float().std(1).min()) > 0.01
    torch.testing.assert_close(draws.weights.sum(1), torch.ones(len(correct)))
    varies = float((draws.weights.amax(0) - draws.weights.amin(0)).max()) > 1e-3
    assert varies == (dependency is not Dependency.INDEPENDENT)


def test_repeated_searches_are_left_out(case: Case) -> None:
    learned = case.learned(Dependency.LABEL)
    repeated = replace(learned, source=replace(learned.source, fit_seed=1))
    found = case.collected([], [learned, repeated])
    assert [each.source for each in found.worst] == ["nppr:label"]


def test_expensive_and_failing_sources_are_left_out(case: Case) -> None:
    attack, noise = AutoAttack(case.budget), Uniform(case.budget)
    broken = Broken(case.budget, 0.0, "broken")
    broken.metric = Metric.AR
    tallies = case.tallies([noise])
    tallies |= {attack.name: tallies["uniform"], "broken": tallies["uniform"]}
    tallies["stress"] = tallies["uniform"]
    sources = [attack, broken, Stress(case.budget), noise]
    found = case.collected(sources, [], tallies)
    assert [each.source for each in found.worst] == ["uniform"]


def test_attacks_of_the_user_are_shown(case: Case) -> None:
    def brighter(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert len(y) == len(x) == len(model(x))
        return (x + 0.2).clamp(0, 1)

    attack = CustomAttack(case.budget, brighter)
    [shown] = case.collected([attack], []).worst
    assert shown.source == "brighter"
    assert float(shown.delta.max()) <= 1


def test_without_anything_else_the_worst_corruption_is_shown(case: Case) -> None:
    [shown] = case.collected([Brightness()], []).worst
    assert shown.source == "brightness"
    assert bool(torch.isfinite(shown.delta).all())


def test_large_images_are_kept_small() -> None:
    case = made(inputs=8, shape=(3, 100, 120), classes=2)
    evidence = case.collected([Uniform(case.budget)], [case.learned(Dependency.LABEL)])
    assert evidence.worst[0].clean.shape[1:] == (3, 80, 96)
    (draws,) = case.drawn([case.learned(Dependency.LABEL)])
    assert draws.many.shape[2:] == (3, 27, 32)
    assert draws.few.shape[:2] == (2, 128)


@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.5)], ids=str)
def test_one_input_and_two_classes(budget: Budget) -> None:
    case = made(inputs=1, classes=2, budget=budget)
    evidence = case.collected([Uniform(budget)], [case.learned(Dependency.JOINT)])
    assert evidence.worst[0].clean.shape == (1, 1, 8, 8)
    (draws,) = case.drawn([case.learned(Dependency.JOINT)])
    assert draws.many.shape == (1, 8, 1, 8, 8)
    sizes = budget.size(draws.few.float() * budget.radius)
    assert bool((sizes <= 1.001 * budget.radius).all())


def test_without_a_clean_correct_input_nothing_is_shown() -> None:
    case = made(inputs=12)
    labels = case.data.evaluate.labels
    with case.classifier.frozen() as models, torch.no_grad():
        x, _ = case.data.evaluate.batch(np.arange(12))
        labels[:] = (models.original.logits(x).argmax(1).numpy() + 1) % 3
    found = case.collected([], [case.learned(Dependency.LABEL)])
    assert found.worst == ()
    assert found.draws == ()


def given_by(covariance: str, components: int = 4) -> Given:
    torch.manual_seed(0)
    family = Family(Dependency.INDEPENDENT, components=components, covariance=covariance)
    made = Distribution(family, (1, 6, 6), 2)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(0.3 * torch.randn_like(value))
        given: Given = made.mixture(Context(torch.tensor([0])))
    return given


@pytest.mark.parametrize("covariance", ["diag", "lowrank:3", "full"])
def test_covariances_are_those_of_projected_components(covariance: str) -> None:
    given = given_by(covariance)
    found = _describe_components(given.log_weights.exp(), given)
    component = given.covariance.component(given.means, given.raw, given.growth)
    drawn = component.sample((20_000,))[:, 0]
    torch.testing.assert_close(found["stds"], drawn.std(0), rtol=0.03, atol=0.0)
    assert found["covariances"].shape == (4, 16, 16)
    # The directions are not kept, but lengths, angles and spreads along them are.
    centred = found["means"] - found["means"].mean(0)
    lengths = centred @ centred.T
    torch.testing.assert_close(
        found["projected"] @ found["projected"].T, lengths, rtol=1e-3, atol=1e-3
    )
    along = torch.linalg.lstsq(found["projected"][:, :3], centred).solution
    spread = torch.einsum("nkd,jd->nkj", drawn - component.mean[0], along)
    direct = torch.einsum("nki,nkj->kij", spread, spread) / len(drawn)
    torch.testing.assert_close(found["covariances"][:, :3, :3], direct, rtol=0.1, atol=0.02)


def test_directions_beyond_the_means_hold_the_largest_variances() -> None:
    given = given_by("diag", components=1)
    found = _describe_components(given.log_weights.exp(), given)
    assert float(found["projected"].abs().max()) < 1e-5
    variances = found["covariances"][0].diagonal()
    largest = found["stds"][0].square().sort(descending=True).values[:16]
    torch.testing.assert_close(variances, largest, rtol=1e-4, atol=1e-6)
