"""From the settings of a study to the one stage that a fit node runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from nppr.noise import Dependency, Family
from nppr.search import SearchSettings, default_settings, paper_settings
from nppr.search.search_settings import SHARES, Stage, walk
from nppr.study.families import Member
from nppr.study.hashing import digest_of
from nppr.study.spec import FitEntry

__all__ = ["Chain", "stage_of"]

PAPER_EPOCHS = 50


@dataclass(frozen=True)
class Chain:
    """What the fits of one chain share: all but dependency, components and floor."""

    classifier: str
    feature_model: str
    norm: str
    radius: float
    covariance: str | None
    upsampler: str | None
    loss: str
    epochs: int | None
    seed: int
    fit: FitEntry

    def digest(self, draws: int) -> str:
        """A hash of all its settings and of the draws that it is measured with."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return digest_of({**known, "fit": self.fit.model_dump(mode="json"), "draws": draws})

    @property
    def paper(self) -> bool:
        """Whether every family is fitted from scratch and nothing is chosen."""
        return self.fit.preset == "paper"

    def family(self, member: Member) -> Family:
        """The family of a member."""
        hidden = self.fit.hidden_dim or (256 if self.paper else 128)
        return Family(
            dependency=member.dependency,
            components=member.components,
            covariance=self.covariance or ("full" if self.paper else "diag"),
            upsampler=self.upsampler or ("bicubic" if self.paper else "none"),
            latent_dim=self.fit.latent_dim,
            grid=self.fit.grid,
            hidden_dim=hidden,
            label_dim=self.fit.label_dim,
            min_std=self.fit.min_std,
            floor=member.floor,
        )

    def settings(self, member: Member, inputs: int) -> SearchSettings:
        """The settings of a search up to a member, on a fit part of this many inputs."""
        given: dict[str, Any] = {"kappa": self.fit.kappa, "loss": self.loss}
        if self.fit.draws is not None:
            given["draws"] = self.fit.draws
        family, floors = self.family(member), (member.floor,)
        if self.paper:
            made = paper_settings(family, inputs=inputs, floors=floors, **given)
        else:
            made = default_settings(family, floors=floors, **given)
        recipe = replace(made.recipe, inputs=self.fit.step_inputs or made.recipe.inputs)
        epochs = self.epochs or self.fit.epochs
        if epochs is None and self.fit.calls is None and self.paper:
            epochs = PAPER_EPOCHS
        calls = made.calls if self.fit.calls is None else self.fit.calls
        if epochs is not None:
            calls = epochs * max(recipe.inputs, inputs) * recipe.draws
        return replace(made, recipe=recipe, calls=max(calls, recipe.inputs * recipe.draws))


def stage_of(
    chain: Chain, member: Member, inputs: int, *, first: bool
) -> tuple[SearchSettings, Stage]:
    """The fit of one member: its settings, and the stage with its steps.

    Every family takes its share of the calls of a walk up to joint noise, whatever else is in the
    study, so that its fit does not change when the study grows.
    """
    settings = chain.settings(member, inputs)
    if chain.paper:
        return settings, walk(settings)[0]
    steps = int(settings.calls * SHARES[Dependency.JOINT][member.dependency]) // settings.step_calls
    recipe = settings.recipe if first else replace(settings.recipe, rate=settings.child_rate)
    name = f"{member.dependency.value}-{member.components}"
    stage = Stage(
        name=name if not member.floor else f"{name}-floor-{member.floor:g}",
        family=settings.family.with_(floor=member.floor),
        parents=(),
        recipe=recipe,
        steps=max(1, steps) if member.floor < 1 else 0,
        last=False,
    )
    return settings, stage
