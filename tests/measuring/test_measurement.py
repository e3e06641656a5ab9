from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import Interrupting, Linear, Stray, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, Progress, Tally
from nppr.data import Split, load_data
from nppr.errors import BudgetBreach, ClassifierError, DataError, SpecError
from nppr.measuring.blocks import Blocks, FileStore
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, frozen, load_classifier, prepare
from nppr.sources import PGD, Clean, Gaussian, Uniform

BUDGET = Budget.linf(0.3)
DATA = two_class_data()


def test_counts_by_a_plain_loop() -> None:
    """An independent loop over inputs and draws, with the same noise, counts the same."""
    from nppr.core.random_draws import DrawBlock

    classifier = Classifier(half_classifier())
    tally = measure(Gaussian(BUDGET), classifier, DATA.evaluate, draws=40, seed=5)
    for position in range(len(DATA.evaluate)):
        x, y = DATA.evaluate.batch(np.array([position]))
        right = 0
        for block, size in enumerate((16, 16, 8)):
            index = int(DATA.evaluate.indices[position])
            draws = DrawBlock(5, "evaluate", (index,), block, size, torch.device("cpu"))
            noise = (0.3 * draws.normal("gaussian", (1, 4, 4))[0]).clamp(-0.3, 0.3)
            logits = classifier.forward((x + noise).clamp(0, 1))
            right += int((logits.argmax(1) == y).sum())
        assert right == tally.correct[position]
    assert tally.calls == len(DATA.evaluate) * 40
    assert tally.clean_correct.all()


def test_more_draws_extend_fewer() -> None:
    classifier = Classifier(half_classifier())
    few, more = (
        measure(Gaussian(BUDGET), classifier, DATA.evaluate, draws=draws) for draws in (16, 48)
    )
    assert (few.correct <= more.correct).all()
    assert (more.correct - few.correct <= 32).all()


def test_all_inputs_are_kept_with_a_mask() -> None:
    wrong = evaluate_part(torch.full((4, 1, 1, 1), 0.9), [0, 1, 0, 1])
    tally = measure(
        Uniform(Budget.linf(0.01)), Classifier(Linear(torch.ones(1), -0.5)), wrong, classes=2
    )
    assert tally.clean_correct.tolist() == [True, False, True, False]
    assert tally.correct.tolist() == [100, 0, 100, 0]


def test_features_of_the_pass_without_noise_are_kept_by_index() -> None:
    data = load_data("digits")
    part = replace(
        data.evaluate, indices=data.evaluate.indices[:9], labels=data.evaluate.labels[:9]
    )
    known = load_classifier("digits-cnn")
    ready = prepare(known, probe(part), classes=10, micro_batch=4)
    kept: dict[int, Tensor] = {}
    plain = measure(Clean(), ready, part, clean_correct=np.ones(9, bool))
    tally = measure(Clean(), ready, part, clean_correct=np.ones(9, bool), keep=kept)
    assert np.array_equal(tally.correct, plain.correct)
    assert tally.calls == plain.calls
    assert sorted(kept) == sorted(part.indices.tolist())
    with frozen(known) as seen, torch.inference_mode():
        expected = seen.features(part.batch(np.arange(9))[0])
    found = torch.stack([kept[int(index)] for index in part.indices])
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    noisy: dict[int, Tensor] = {}
    measure(Uniform(BUDGET), ready, part, draws=2, keep=noisy)
    assert not noisy


class NoGain(nn.Module):
    """In-place operations, `.view`, its own batch logic: what foreign modules do."""

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2.0).sub_(1.0)
        if len(x) > 3:
            return torch.cat([self.forward((part + 1) / 2) for part in x.split(3)])
        left = x[..., :2].reshape(len(x), -1).sum(1)
        right = x[..., 2:].contiguous().view(len(x), -1).sum(1)
        return torch.stack([left, right], 1)


def squeezing(x: Tensor) -> Tensor:
    """Drops its batch dimension when there is one image only."""
    return half_classifier().forward(x).squeeze()


@pytest.mark.parametrize("model", [NoGain(), lambda x: {"logits": NoGain()(x)}, squeezing])
@pytest.mark.parametrize("micro_batch", [None, 7])
def test_foreign_modules_work_too(
    model: Callable[[Tensor], Tensor], micro_batch: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    for source in (Gaussian(BUDGET), PGD(Budget.linf(0.05))):
        tallies = [
            measure(
                source,
                prepare(Classifier(known), DATA.evaluate.batch(np.arange(8))[0], classes=2,
                        micro_batch=micro_batch),
                DATA.evaluate,
                draws=21,
            )
            for known in (half_classifier(), model)
        ]  # fmt: skip
        assert np.array_equal(tallies[0].correct, tallies[1].correct)
    assert capfd.readouterr().err == ""


class TooLarge(Linear):
    """A model that runs out of memory on more than `most` images."""

    def __init__(self, most: int) -> None:
        known = half_classifier()
        super().__init__(known.w.detach(), 0.0)
        self.most = most
        self.allowed = 10_000

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.allowed:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        return super().forward(x)


def test_out_of_memory_halves_and_goes_on() -> None:
    expected = measure(Gaussian(BUDGET), Classifier(half_classifier()), DATA.evaluate, draws=40)
    model = TooLarge(most=5)
    ready = prepare(Classifier(model), torch.rand(4, 1, 4, 4), classes=2, micro_batch=64)
    ready.fast.model.allowed = model.allowed = 5  # type: ignore[attr-defined]
    tally = measure(Gaussian(BUDGET), ready, DATA.evaluate, draws=40)
    assert np.array_equal(tally.correct, expected.correct)


def test_out_of_memory_halves_for_attacks_too() -> None:
    expected = measure(PGD(BUDGET), Classifier(half_classifier()), DATA.evaluate)
    model = TooLarge(most=5)
    ready = prepare(Classifier(model), torch.rand(4, 1, 4, 4), classes=2, micro_batch=64)
    ready.fast.model.allowed = model.allowed = 5  # type: ignore[attr-defined]
    tally = measure(PGD(BUDGET), ready, DATA.evaluate)
    assert np.array_equal(tally.correct, expected.correct)
    assert tally.micro_batch == 4


def test_out_of_memory_while_preparing() -> None:
    model = TooLarge(most=5)
    model.allowed = 5
    for given, found in ((64, 4), (None, 4), (3, 3)):
        ready = prepare(Classifier(model), torch.rand(4, 1, 4, 4), classes=2, micro_batch=given)
        assert ready.micro_batch == found


def test_out_of_memory_on_one_image_is_an_error() -> None:
    model = TooLarge(most=0)
    ready = prepare(Classifier(model), torch.rand(4, 1, 4, 4), classes=2, micro_batch=4)
    ready.fast.model.allowed = model.allowed = 0  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="allocate memory"):
        measure(Gaussian(BUDGET), ready, DATA.evaluate, draws=4)


def test_the_caller_checks_the_budget() -> None:
    classifier = Classifier(half_classifier())
    with pytest.raises(BudgetBreach, match="'stray'"):
        measure(Stray(Budget.linf(0.1), 0.11), classifier, DATA.evaluate)
    with pytest.raises(BudgetBreach, match="'stray'"):
        measure(Stray(Budget.linf(0.1), float("nan")), classifier, DATA.evaluate)
    measure(Stray(Budget.linf(0.1), 0.1), classifier, DATA.evaluate)
    # A corruption has no budget, but its numbers must be numbers.
    measure(Stray(None, 0.9), classifier, DATA.evaluate)
    with pytest.raises(DataError, match="finite"):
        measure(Stray(None, float("nan")), classifier, DATA.evaluate)


def test_wrong_shapes_are_named() -> None:
    class Flat(Stray):
        def perturb(self, *arguments: object) -> Tensor:
            return torch.zeros(3)

    with pytest.raises(DataError, match=r"shape .* got \(3,\)"):
        measure(Flat(None, 0.0), Classifier(half_classifier()), DATA.evaluate)


def test_nan_logits_that_come_late_are_named() -> None:
    def sometimes(x: Tensor) -> Tensor:
        logits = half_classifier()(x)
        return torch.where(x.amax((1, 2, 3), keepdim=False)[:, None] >= 1.0, torch.nan, logits)

    with pytest.raises(ClassifierError, match="finite logits"):
        measure(Stray(None, 0.9), Classifier(sometimes), DATA.evaluate)


@pytest.mark.parametrize("draws", [0, -1])
def test_no_draws_is_an_error(draws: int) -> None:
    with pytest.raises(SpecError, match="`draws`"):
        measure(Gaussian(BUDGET), Classifier(half_classifier()), DATA.evaluate, draws=draws)


def test_an_empty_split_is_an_error() -> None:
    with pytest.raises(DataError, match="fit split must hold at least one input"):
        measure(Gaussian(BUDGET), Classifier(half_classifier()), DATA.fit)


def test_quantised_inputs_are_8_bit() -> None:
    seen: list[Tensor] = []

    def watch(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return half_classifier().forward(x)

    ready = prepare(Classifier(watch), torch.rand(4, 1, 4, 4), classes=2, micro_batch=64)
    clean = np.ones(len(DATA.evaluate), bool)
    seen.clear()
    ready = replace(ready, quantise=True)
    measure(Uniform(BUDGET), ready, DATA.evaluate, draws=4, clean_correct=clean)
    levels = torch.cat(seen) * 255
    assert float((levels - levels.round()).abs().max()) < 1e-4


def test_attacks_see_what_is_measured_when_inputs_are_quantised() -> None:
    """Every input that the attack breaks is broken when its 8-bit image is judged."""
    source = PGD(Budget.linf(2 / 255), steps=20, step=0.1)
    seen: list[bool] = []

    class Watched(PGD):
        def perturb(self, model, x, y, draws):  # type: ignore[no-untyped-def]
            delta = super().perturb(model, x, y, draws)
            moved = ((x + delta[:, 0]).clamp(0, 1) * 255).round() / 255
            seen.extend((half_classifier()(moved).argmax(1) != y).tolist())
            return delta

    data = two_class_data(200)
    watched = Watched(source.budget, source.steps, source.step)
    known = prepare(Classifier(half_classifier()), probe(data.evaluate), classes=2)
    tally = measure(watched, replace(known, quantise=True), data.evaluate)
    assert (tally.correct == 0).tolist() == seen
    exact = measure(source, Classifier(half_classifier()), data.evaluate)
    assert 0 < (tally.correct == 0).sum() <= (exact.correct == 0).sum() + 10


def test_close_calls_are_settled_by_the_model_as_given() -> None:
    """Two forms that differ by less than rounding may matter: the reference decides."""
    images = torch.full((6, 1, 1, 1), 0.5)
    part = evaluate_part(images, [0] * 6)
    reference = Classifier(Linear(torch.zeros(1), 1e-6))
    ready = prepare(reference, images, classes=2)
    other = Classifier(Linear(torch.zeros(1), -1e-6))

    def with_large_logits(model: Classifier) -> Classifier:
        return Classifier(lambda x: model.forward(x) + 10.0)

    ready = replace(ready, fast=with_large_logits(other), original=with_large_logits(reference))
    clean = np.ones(6, bool)
    tally = measure(Stray(None, 0.0), ready, part, draws=3, clean_correct=clean)
    assert tally.correct.tolist() == [3] * 6


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[Progress] = []
    tally = measure(
        Uniform(BUDGET),
        prepare(Classifier(half_classifier()), torch.rand(4, 1, 4, 4), classes=2, micro_batch=16),
        DATA.evaluate,
        draws=40,
        clean_correct=np.ones(len(DATA.evaluate), bool),
        progress=told.append,
    )
    done = [state.done for state in told]
    assert done == sorted(done)
    assert told[-1] == Progress("uniform", 40 * len(DATA.evaluate), 40 * len(DATA.evaluate),
                                int(tally.correct.sum()))  # fmt: skip


def run(
    model: Callable[[Tensor], Tensor], part: Split[Evaluate], store: FileStore | None
) -> Tally[Evaluate]:
    ready = prepare(
        Classifier(half_classifier()), torch.rand(4, 1, 4, 4), classes=2, micro_batch=16
    )
    ready = replace(ready, fast=Classifier(model))
    clean = np.ones(len(part), bool)
    return measure(Gaussian(BUDGET), ready, part, draws=70, clean_correct=clean, store=store)


@pytest.mark.parametrize("at", [1, 2, 40, 100])
def test_an_interrupt_keeps_finished_blocks_and_resume_repeats_none(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["nppr.measuring.measurement"], "NUMBERS_AT_ONCE", 256)
    whole = run(half_classifier(), DATA.evaluate, None)
    store = FileStore(tmp_path / "blocks")
    with pytest.raises(KeyboardInterrupt):
        run(Interrupting(at), DATA.evaluate, store)
    kept = store.load(len(DATA.evaluate))
    assert kept is not None
    assert (kept.calls.sum() > 0) == (at > 1)
    counter = Interrupting(-1)
    resumed = run(counter, DATA.evaluate, store)
    assert np.array_equal(resumed.correct, whole.correct)
    assert resumed.calls == whole.calls
    blocks_in_all = 5 * len(DATA.evaluate)
    assert -1 - counter.left == blocks_in_all - kept.finished.sum()


def test_a_finished_measurement_is_not_run_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    first = run(half_classifier(), DATA.evaluate, store)
    again = run(Interrupting(1), DATA.evaluate, store)
    assert np.array_equal(first.correct, again.correct)


def test_partly_finished_chunks_are_completed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    whole = run(half_classifier(), DATA.evaluate, store)
    finished = np.arange(len(DATA.evaluate)) % 6
    right = np.array(
        [
            run(half_classifier(), DATA.evaluate, None).correct[i] if blocks == 5 else 0
            for i, blocks in enumerate(finished)
        ]
    )
    for position, blocks in enumerate(finished):
        if 0 < blocks < 5:
            part = measure(
                Gaussian(BUDGET), Classifier(half_classifier()), DATA.evaluate,
                draws=16 * int(blocks), clean_correct=np.ones(len(DATA.evaluate), bool),
            )  # fmt: skip
            right[position] = part.correct[position]
    store.save(Blocks(right, finished, finished), now=True)
    assert np.array_equal(run(half_classifier(), DATA.evaluate, store).correct, whole.correct)


def test_the_users_model_is_left_as_it_was() -> None:
    model = half_classifier().train()
    before = copy.deepcopy(model.state_dict())
    measure(PGD(BUDGET), Classifier(model), DATA.evaluate, draws=5)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_inputs_to_skip_are_not_run_and_count_as_wrong() -> None:
    inputs = len(DATA.evaluate)
    skip = np.arange(inputs) % 3 == 0
    seen: list[Tensor] = []

    def watch(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return half_classifier().forward(x)

    ready = prepare(Classifier(watch), torch.rand(4, 1, 4, 4), classes=2, micro_batch=16)
    clean = np.ones(inputs, bool)
    whole = measure(Gaussian(BUDGET), ready, DATA.evaluate, draws=20, clean_correct=clean)
    tally = measure(
        Gaussian(BUDGET), ready, DATA.evaluate, draws=20, clean_correct=clean, skip=skip
    )
    assert (whole.correct[skip] > 0).any()
    assert (tally.correct[skip] == 0).all()
    assert np.array_equal(tally.correct[~skip], whole.correct[~skip])
    assert tally.calls == 20 * int((~skip).sum())
    assert tally.clean_correct.all()
    seen.clear()
    still = Stray(None, 0.0)
    measure(still, ready, DATA.evaluate, draws=1, clean_correct=clean, skip=skip)
    images, _ = DATA.evaluate.batch(np.flatnonzero(~skip))
    assert torch.equal(torch.cat(seen), images)


def test_where_all_inputs_are_skipped_nothing_is_run() -> None:
    everything = np.ones(len(DATA.evaluate), bool)
    tally = measure(
        PGD(BUDGET), Classifier(half_classifier()), DATA.evaluate, clean_correct=everything,
        skip=everything,
    )  # fmt: skip
    assert (tally.calls, tally.correct.sum()) == (0, 0)


class Grouped(Stray):
    """A source that gets seven inputs together, and remembers which."""

    def __init__(self, inputs_at_once: int = 7) -> None:
        super().__init__(None, 0.0, name="grouped")
        self.inputs_at_once = inputs_at_once
        self.groups: list[tuple[int, ...]] = []
        self.passes = 1.0

    @property
    def cost(self) -> float:
        return self.passes

    def perturb(self, model, x, y, draws):  # type: ignore[no-untyped-def]
        self.groups.append(draws.indices)
        return super().perturb(model, x, y, draws)


@pytest.mark.parametrize("micro_batch", [1, 5, 64, 1000])
@pytest.mark.parametrize("cost", [1.0, 60.0])
def test_a_grouping_source_gets_its_groups_whatever_the_micro_batch(
    micro_batch: int, cost: float
) -> None:
    images = torch.rand(4, 1, 4, 4)
    known = Classifier(half_classifier())
    ready = prepare(known, images, classes=2, micro_batch=micro_batch, speedups=())
    source = Grouped()
    source.passes = cost
    tally = measure(source, ready, DATA.evaluate, draws=3)
    indices = DATA.evaluate.indices.tolist()
    groups = [tuple(indices[start : start + 7]) for start in range(0, len(indices), 7)]
    assert source.groups == groups
    assert tally.correct.tolist() == [3] * len(indices)


def test_a_grouping_source_does_not_see_memory_run_out() -> None:
    """The classifier gets less at once, the source the same."""
    model = TooLarge(most=5)
    ready = prepare(
        Classifier(model), torch.rand(4, 1, 4, 4), classes=2, micro_batch=64, speedups=()
    )
    ready.fast.model.allowed = model.allowed = 5  # type: ignore[attr-defined]
    source = Grouped(20)
    tally = measure(source, ready, DATA.evaluate, draws=2)
    assert {len(group) for group in source.groups} == {20}
    assert tally.micro_batch == 4
    assert tally.correct.tolist() == [2] * len(DATA.evaluate)


def test_clean_observes_the_logarithm_of_the_standard_loss() -> None:
    known = Classifier(half_classifier())
    clean = measure(Clean(), known, DATA.evaluate)
    x, y = DATA.evaluate.batch(np.arange(len(DATA.evaluate)))
    expected = nn.functional.cross_entropy(known.forward(x).double(), y, reduction="none")
    assert clean.sums is not None
    assert clean.sums.shape == (len(DATA.evaluate), 1)
    assert np.allclose(np.exp(clean.sums[:, 0]), expected.detach().numpy(), rtol=1e-5)
    assert measure(Gaussian(BUDGET), known, DATA.evaluate, draws=2).sums is None


def test_logits_may_be_whole_numbers() -> None:
    data = two_class_data()
    floats = Classifier(lambda x: torch.stack([x.sum((1, 2, 3)), 8 - x.sum((1, 2, 3))], 1).round())
    whole = Classifier(lambda x: floats.forward(x).long())
    found, expected = (
        measure(Uniform(Budget.linf(0.1)), each, data.evaluate, draws=8, classes=2).correct
        for each in (whole, floats)
    )
    assert np.array_equal(found, expected)
    assert 0 < found.sum() < found.size * 8
