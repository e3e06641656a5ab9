"""Definitions of a correct answer: the label has the largest logit, or a user's predicate holds.

Every task becomes a classification into wrong and right, with logits `(0, score)` and label 1.
Margins, losses and counts are then the same as for any classifier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.errors import TaskError
from nppr.system.user_code import contain_exits

Judgement = Callable[[Tensor, Tensor], Tensor]

TIE_SCORE = 1e-6
"""Largest absolute score of a tie; `correct` alone decides about ties."""


FINGERPRINT_STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Sizes of the noise that distinguishes tasks, in standard deviations of the outputs."""


@dataclass(frozen=True)
class Task:
    """A rule that decides whether outputs `(B, ...)` are correct for targets `(B, ...)`.

    `correct(outputs, targets)` returns one bool per input. `score(outputs, targets)` returns one
    number per input, positive exactly if the answer is correct; a search follows its gradient. One
    of the two is enough; without `score`, the search takes no gradients and sees only right and
    wrong. `meaning` is the definition of a correct answer in words. With `classes`, the targets are
    class numbers `(N,)` from 0, so noise and results may differ by class. `kind` names the task in
    exports, such as "regression", "segmentation" or "detection"; with `classes`, the default is
    "classification".

    >>> import torch
    >>> close = Task(score=lambda outputs, targets: 0.5 - (outputs[:, 0] - targets).abs(),
    ...              meaning="the error is below 0.5")
    >>> logits, labels = close.to_classes(torch.tensor([[1.0], [3.0]]), torch.tensor([1.25, 1.0]))
    >>> (logits.argmax(1) == labels).tolist()
    [True, False]
    """

    correct: Judgement | None = None
    score: Judgement | None = None
    meaning: str = ""
    classes: bool = False
    kind: str = ""

    def __post_init__(self) -> None:
        if self.classes and not self.kind:
            object.__setattr__(self, "kind", "classification")
        given = [each for each in (self.correct, self.score) if each is not None]
        if not given or not all(callable(each) for each in given):
            raise TaskError(
                "`task` must have a function `correct` or `score` of outputs and targets, got"
                f" correct={self.correct!r}, score={self.score!r}."
            )

    @property
    def words(self) -> str:
        """The definition of a correct answer in words."""
        function = self.correct or self.score
        return self.meaning or f"{getattr(function, '__name__', 'the predicate')} holds"

    def fingerprint(self, outputs: Tensor, targets: Tensor) -> str:
        """Return a hash of the decisions on the given outputs, without and with increasing noise."""
        generator = torch.Generator().manual_seed(0)
        values = outputs.detach().cpu().double()
        noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
        spread = values.std(unbiased=False).clamp_min(1e-6)
        digest = hashlib.sha256(self.words.encode())
        for level in (0.0, *FINGERPRINT_STEPS):
            moved = (values + level * spread * noise).to(outputs)
            try:
                logits, labels = self.to_classes(moved, targets)
            except TaskError:
                if not level:
                    raise
                digest.update(b"refused")  # outputs that the model need not give
            else:
                digest.update((logits.argmax(1) == labels).cpu().numpy().tobytes())
        return digest.hexdigest()

    def to_classes(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits `(B, 2)` of wrong and right, and the label 1 (right), `(B,)`."""
        right = self._right(outputs, targets)
        if self.score is None:
            assert right is not None
            score = 2.0 * right.to(outputs) - 1.0
        else:
            score = self._called("score", self.score, outputs, targets)
            if not score.is_floating_point():
                raise TaskError(f"`task.score` must return floats, got {score.dtype}.")
        if self.score is not None and right is not None:
            far = (score.detach().abs() > TIE_SCORE) & ((score.detach() > 0) != right)
            if bool(far.any()):
                raise TaskError(
                    "`task.score` must be above 0 exactly where `task.correct` is true, but they differ"
                    f" for {int(far.sum())} of {len(far)} inputs."
                )
            score = torch.where(right, score.clamp_min(TIE_SCORE), score.clamp_max(0.0))
        labels = torch.ones(len(score), dtype=torch.int64, device=score.device)
        return torch.stack([torch.zeros_like(score), score], 1), labels

    def _right(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        if self.correct is None:
            return None
        right = self._called("correct", self.correct, outputs.detach(), targets)
        if right.dtype is not torch.bool:
            raise TaskError(
                f"`task.correct` must return booleans, one per input, got {right.dtype}."
                " Compare with a threshold."
            )
        return right

    def _called(self, name: str, function: Judgement, outputs: Tensor, targets: Tensor) -> Tensor:
        try:
            with contain_exits():
                found = function(outputs, targets)
        except Exception as error:  # code of the caller may fail in any way
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise TaskError(
                f"`task.{name}` must accept outputs {tuple(outputs.shape)} and targets"
                f" {tuple(targets.shape)}, but it failed: {reason}"
            ) from error
        if not isinstance(found, torch.Tensor) or found.shape != (len(outputs),):
            got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise TaskError(
                f"`task.{name}` must return a tensor of shape (B,), one entry per input, got {got} for"
                f" {len(outputs)} input{'s' if len(outputs) != 1 else ''}."
            )
        if found.is_floating_point() and not bool(torch.isfinite(found).all()):
            raise TaskError(f"`task.{name}` must return finite numbers, got NaN or infinite ones.")
        return found
