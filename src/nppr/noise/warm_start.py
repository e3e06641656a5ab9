"""A distribution of a larger family that starts exactly at its parent's solution.

Growth copies the parent's law. Routing then decides which of several equal components an input gets: a
child whose components are copies of one may send each class to another copy without changing its law.
From there the copies diverge at once; with equal weights all would get nearly the same gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.errors import SpecError
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family, Rule
from nppr.noise.mixture import HEADS, PER_COMPONENT

NEGLIGIBLE = 0.02
"""Components with less than this fraction of an even weight give way to copies of others."""

ROUTING = 3.0
"""Logit of a class for its component: 20 times the weight of any other."""

OWN_ROUTING = 20.0
"""The logit if every class has a component that no other class should use."""

RIDGE = 1e-2


def grow(parent: Distribution, family: Family, classes: int, features: int = 0) -> Distribution:
    """A distribution of `family` with the law of `parent`, whose family lies inside it.

    Knowledge beyond that of the parent enters through layers that are zero. If the child has more
    components, the heaviest ones are split into copies of equal weight.
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
    """The one component that a distribution ever uses, or None."""
    if distribution.family.components == 1:
        return 0
    if distribution.rule is Rule.CHOSEN and len(distribution.chosen.unique()) == 1:
        return int(distribution.chosen[0])
    if distribution.rule is Rule.LARGEST and not distribution.family.dependency.knows:
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
    """Send classes to components by the feature head: features `(N, F)` reveal most classes."""
    mixture = distribution.mixture
    seen = mixture.shared((features - mixture.feature_mean) * mixture.feature_scale)
    mixture.input_weights.weight.copy_(_ridge(seen, _wanted(distribution, labels)).T)


def _require_inside(parent: Distribution, family: Family) -> None:
    own = parent.family
    alike = own.with_(dependency=family.dependency, components=family.components) == family
    larger = family.dependency.contains(own.dependency, label_only=family.label_only)
    inside = larger and family.components >= own.components
    if family.random_start:  # what a head adds is not zero at the start
        inside = inside and family.dependency is own.dependency
    if not (alike and inside):
        raise SpecError(
            "`family` must contain the family of its parent: the same except for what it sees, which"
            f" may be more, and its components, at least {own.components}."
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
    weights = _log_weights(parent).exp().tolist()
    kept = list(range(parent.family.components))  # every context may use another one
    if not parent.family.dependency.knows or only_component(parent) is not None:
        kept = [k for k in kept if weights[k] >= NEGLIGIBLE / parent.family.components]
    copies = dict.fromkeys(kept, 1)
    while sum(copies.values()) < components:
        copies[max(kept, key=lambda k: weights[k] / copies[k])] += 1
    return torch.tensor([k for k in kept for _ in range(copies[k])])


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
    routing = OWN_ROUTING if components >= distribution.classes > 1 else ROUTING
    return routing * F.one_hot(labels % components, components).float()


def _ridge(seen: Tensor, wanted: Tensor) -> Tensor:
    """Least squares with a small ridge: `seen @ result` is about `wanted`."""
    gram = seen.T @ seen
    ridge = RIDGE * gram.diagonal().mean().clamp_min(1e-12)
    solved: Tensor = torch.linalg.solve(
        gram + ridge * torch.eye(len(gram), device=seen.device), seen.T @ wanted
    )
    return solved
