"""Words for the perturbations of a budget: added noise, or a law of transformation parameters.

Tables, sentences, pages and figures take their words from here, so only this file depends on the
kind of budget. It does not import PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Nouns:
    """The words for one kind of budget; field names are the words for added noise."""

    kind: str
    """`noise` or `law`: the key of texts that other packages declare for both kinds."""
    noise: str
    noises: str
    a_noise: str
    other_noise: str
    worse_noise: str
    bad_noise: str
    all_noise: str
    every_noise: str
    blind_noise: str
    noise_in_full: str
    surroundings: str
    """What noise is in practice; completes "what ... can know of the input"."""
    fixed_noise: str
    subject: str
    """The noise, as the subject of a sentence about what it may depend on."""
    drawn: str
    """A draw from a source, as in "uniform noise"."""
    perturbed: str
    """Objects to which a perturbation is added."""
    change: str
    """An attack's choice for one input."""
    admitted_change: str
    shown_change: str
    """Caption of the picture between an input and its perturbed version."""
    value: str
    pattern: str
    """Perturbation that all inputs share if the noise is not random."""
    patterns: str
    disturbance: str
    """Disturbance that clean inputs lack."""
    region: str
    """The shape of the budget."""
    reference: str
    """Name of the reference of a set of noise; `{}` is the source."""
    references: str
    uniform: str
    radius: str
    radii: str
    own_radius: str
    other_radii: str
    at_radius: str
    """A position on the axis of radii; `{}` is the radius."""
    found_at: str
    std_unit: str
    """The unit of the realised standard deviation."""
    edge: str
    """Limit of a draw."""
    scaled: str
    """Effect of another radius on learned noise; `{}` is the budget of the search."""
    scaled_briefly: str
    floor_meaning: str
    floor_briefly: str
    rivals: str

    def refer_to(self, name: str | None) -> str:
        """Return the name of the reference of a set, given its source.

        >>> NOISE.refer_to("uniform"), LAW.refer_to("uniform"), NOISE.refer_to(None)
        ('uniform noise', 'the uniform law', 'the reference noise')
        """
        return self.reference.format(name) if name else f"the reference {self.noise}"


NOISE = Nouns(
    kind="noise",
    noise="noise",
    noises="noise",
    a_noise="noise",
    other_noise="other noise",
    worse_noise="worse noise",
    bad_noise="bad noise",
    all_noise="all noise",
    every_noise="all noise",
    blind_noise="noise that does not see the input",
    noise_in_full="noise",
    surroundings="noise",
    fixed_noise="known noise: fixed beforehand",
    subject="the noise",
    drawn="noise",
    perturbed="images",
    change="perturbation",
    admitted_change="perturbation of the budget",
    shown_change="one perturbation",
    value="pixel value",
    pattern="pattern",
    patterns="patterns",
    disturbance="noise",
    region="box",
    reference="{} noise",
    references="noises",
    uniform="Uniform noise in the budget has",
    radius="radius",
    radii="radii",
    own_radius="radius of the budget",
    other_radii="other radii",
    at_radius="at radius {}",
    found_at="at",
    std_unit="radius",
    edge="the edge of the budget",
    scaled="Learned noise is that of radius {}, scaled: a search at the other radius may find worse.",
    scaled_briefly="learned noise is scaled to these radii, not searched for again: worse may exist",
    floor_meaning=(
        "The floor rho is the fraction of Uniform noise in every draw: 0 admits one fixed pattern per"
        " input, 1 is Uniform noise. Below, the realised standard deviation in radii."
    ),
    floor_briefly="weight of Uniform noise; over many pixels mostly a smaller radius",
    rivals="fixed noise, universal",
)
"""Words for noise that is added to images."""

LAW = Nouns(
    kind="law",
    noise="law",
    noises="laws",
    a_noise="a law",
    other_noise="another law",
    worse_noise="a worse law",
    bad_noise="bad laws",
    all_noise="all laws",
    every_noise="every law of the parameters",
    blind_noise="laws that do not see the input",
    noise_in_full="law of the parameters",
    surroundings="the conditions",
    fixed_noise="known conditions: a law fixed beforehand",
    subject="the law of the parameters",
    drawn="parameters",
    perturbed="parameters",
    change="parameters",
    admitted_change="parameters in the ranges",
    shown_change="the difference of both images",
    value="parameter",
    pattern="value",
    patterns="parameters",
    disturbance="a transformation",
    region="box",
    reference="the {} law",
    references="laws",
    uniform="uniform parameters have",
    radius="fraction of the ranges",
    radii="fractions of the ranges",
    own_radius="fraction of the ranges",
    other_radii="smaller ranges",
    at_radius="in {} of the ranges",
    found_at="in",
    std_unit="half a range",
    edge="an end of their range",
    scaled="Learned laws are those of {}, scaled: a search in the smaller ranges may find worse ones.",
    scaled_briefly=(
        "learned laws are scaled to these ranges, not searched for again: worse ones may exist"
    ),
    floor_meaning=(
        "The floor rho is the weight of uniform parameters in every draw: 0 admits fixed parameters for"
        " each input, 1 is the uniform law. Below, the realised standard deviation, in halves of a"
        " range."
    ),
    floor_briefly="weight of uniform parameters in every draw",
    rivals="a fixed law, universal, an attack",
)
"""Words for parameters of a transformation."""

_BY_NORM = {"linf": NOISE, "l2": replace(NOISE, region="ball"), "box": LAW}


def choose_nouns(norm: str, *, images: bool = True) -> Nouns:
    """Return the words for the norm of a budget and for whether inputs are images.

    >>> choose_nouns("l2").region, choose_nouns("linf", images=False).value
    ('ball', 'number')
    """
    nouns = _BY_NORM[norm]
    return nouns if images or nouns is LAW else replace(nouns, value="number")
