"""Learned perturbation distributions: the mixture, up-samplers, the budget and the floor."""

from nppr.distributions.dependency import Dependency
from nppr.distributions.distribution import Distribution, Rule
from nppr.distributions.files import Saved, load_distribution, save_distribution, sealed
from nppr.distributions.growth import grown, only_component
from nppr.distributions.mixture import Context, Given, Mixture, Temperatures
from nppr.distributions.routing import route_by_features, route_by_label
from nppr.distributions.settings import Family

__all__ = [
    "Context",
    "Dependency",
    "Distribution",
    "Family",
    "Given",
    "Mixture",
    "Rule",
    "Saved",
    "Temperatures",
    "grown",
    "load_distribution",
    "only_component",
    "route_by_features",
    "route_by_label",
    "save_distribution",
    "sealed",
]
