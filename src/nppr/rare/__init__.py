"""Rare failures: probabilities of single inputs far below what plain draws can show."""

from nppr.rare.combine import Combined, combined
from nppr.rare.estimate import FEWEST, REPLICATES, Rare, calls_for, rare_failures
from nppr.rare.files import joined, rare_csv, read_rare, write_rare
from nppr.rare.judge import Judge
from nppr.rare.latent import MOVABLE, Latent, latent_of
from nppr.rare.levels import Levels, Status
from nppr.rare.splitting import Outcome, Run, Scheme, split

__all__ = [
    "FEWEST",
    "MOVABLE",
    "REPLICATES",
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
    "joined",
    "latent_of",
    "rare_csv",
    "rare_failures",
    "read_rare",
    "split",
    "write_rare",
]
