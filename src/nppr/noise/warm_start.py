"""A distribution of a larger family that starts exactly at its parent's solution.

Growth copies the parent's law. Routing then decides which of several equal components an input gets: a
child whose components are copies of one may send each class to another copy without changing its law.
From there the copies can diverge at once; with equal weights for all they would be pulled the same way
for long.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.errors import SpecError
from nppr.noise.distribution import Distribution
from nppr.noise.family import Dependency, Family, Rule

PER_COMPONENT = ("logits", "means", "raw")
ALIKE = (
    "covariance", "upsampler", "latent_dim", "grid", "min_std", "kernel", "floor", "scaled",
    "label_only", "wide_heads", "hidden_dim", "label_dim",
)  # fmt: skip
HEADS = ("label_weights", "input_weights", "input_means", "input_raw")
NEGLIGIBLE = 0.02
"""Components with less than this share of an even weight are not split and give way to copies."""

ROUTING = 3.0
"""Logit of a class for its component: 20 times the weight of any other."""

RIDGE = 1e-2


def grow(parent: Distribution, family: Family, classes: int, features: int = 0) -> Distribution:
    """A distribution of `family` with the law of `parent`, whose family lies inside it.

    What the child sees beyond its parent enters through layers that are zero. More components are
    split copies of fewer: each copy has its share of the weight, and the heaviest are split first.
    Components with next to no weight in noise that sees nothing give way to copies.
    """
    _require_inside(parent, family)
    child = Distribution(family, parent.shape, classes, features)
    plan = _split(parent, family.components)
    state = child.state_dict()
    for name, value in parent.state_dict().items():
        if name in state:
            state[name] = _copied(name, value, plan, parent.family.components)
    copies = plan.bincount(minlength=parent.family.components)[plan].float()
    state["mixture.logits"] = _log_weights(parent)[plan] - copies.log()
    child.load_state_dict(state)
    return child


def only_component(distribution: Distribution) -> int | None:
    """The one component that a distribution ever uses, or None where there are several."""
    if distribution.rule is Rule.CHOSEN and len(distribution.chosen.unique()) == 1:
        return int(distribution.chosen[0])
    dependency = distribution.family.dependency
    if distribution.rule is Rule.LARGEST and not (dependency.sees_label or dependency.sees_input):
        return int(distribution.mixture.logits.argmax())
    return None


@torch.no_grad()
def route_by_label(distribution: Distribution) -> None:
    """Send the classes to the components in turn, by the label head."""
    mixture = distribution.mixture
    seen = F.normalize(mixture.embedding.weight, dim=-1)
    wanted = _wanted(distribution, torch.arange(distribution.classes, device=seen.device))
    mixture.label_weights.weight.copy_(_ridge(seen, wanted).T)


@torch.no_grad()
def route_by_features(distribution: Distribution, features: Tensor, labels: Tensor) -> None:
    """The same by the feature head: features `(N, F)` reveal the class of most inputs."""
    mixture = distribution.mixture
    seen = mixture.shared((features - mixture.feature_mean) * mixture.feature_scale)
    mixture.input_weights.weight.copy_(_ridge(seen, _wanted(distribution, labels)).T)


def _require_inside(parent: Distribution, family: Family) -> None:
    before, after = parent.family, family
    alike = all(getattr(before, name) == getattr(after, name) for name in ALIKE)
    inside = after.dependency.contains(before.dependency) and after.components >= before.components
    if after.label_only and before.dependency is Dependency.INPUT:
        inside = inside and after.dependency is Dependency.INPUT  # joint weights see no features
    if not (alike and inside):
        raise SpecError(
            "`family` must contain the family of its parent: the same but for what it sees, which"
            f" may be more, and its components, at least {before.components}."
        )


def _log_weights(parent: Distribution) -> Tensor:
    """Free log weights, up to what the context adds."""
    single = only_component(parent)
    if single is not None:
        alone = torch.full_like(parent.mixture.logits.detach(), -torch.inf)
        alone[single] = 0.0
        return alone
    return parent.mixture.logits.detach().log_softmax(0)


def _split(parent: Distribution, components: int) -> Tensor:
    """For every component of the child, the component of the parent it copies."""
    weights = _log_weights(parent).exp()
    fixed = parent.family.dependency.sees_label or parent.family.dependency.sees_input
    if fixed and not torch.isinf(_log_weights(parent)).any():
        order = list(range(parent.family.components))  # every context may use another one
    else:
        kept = weights >= NEGLIGIBLE / parent.family.components
        order = [k for k in range(parent.family.components) if kept[k]]
    shares = {k: float(weights[k]) for k in order}
    copies = dict.fromkeys(order, 1)
    while sum(copies.values()) < components:
        copies[max(order, key=lambda k: shares[k] / copies[k])] += 1
    return torch.tensor([k for k in order for _ in range(copies[k])])


def _copied(name: str, value: Tensor, plan: Tensor, components: int) -> Tensor:
    """A tensor of the parent with its components copied by the plan."""
    _, _, key = name.rpartition("mixture.")
    if key in PER_COMPONENT:
        return value[plan]
    if key.split(".")[0] in HEADS:
        return value.reshape(components, -1, *value.shape[1:])[plan].flatten(0, 1)
    return value


def _wanted(distribution: Distribution, labels: Tensor) -> Tensor:
    """Logits `(N, K)` that send class c to component c mod K."""
    components = distribution.family.components
    return ROUTING * F.one_hot(labels % components, components).float()


def _ridge(seen: Tensor, wanted: Tensor) -> Tensor:
    """Least squares with a small ridge: `seen @ result` is about `wanted`."""
    gram = seen.T @ seen
    ridge = RIDGE * gram.diagonal().mean().clamp_min(1e-12)
    solved: Tensor = torch.linalg.solve(
        gram + ridge * torch.eye(len(gram), device=seen.device), seen.T @ wanted
    )
    return solved
