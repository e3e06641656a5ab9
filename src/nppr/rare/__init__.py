"""Rare failures: probabilities of single inputs far below what plain draws can show."""

from nppr.rare.combine import Combined, combined
from nppr.rare.estimate import Rare, calls_for, rare_failures
from nppr.rare.judge import Judge
from nppr.rare.latent import Latent, latent_of
from nppr.rare.levels import Levels, Status
from nppr.rare.splitting import Outcome, Run, Scheme, split

__all__ = [
    "Combined",
    "Judge",
    "Latent",
    "Levels",
    "Outcome",
    "Rare",
    "Run",
    "Scheme",
    "Status",
    "calls_for",
    "combined",
    "latent_of",
    "rare_failures",
    "split",
]
