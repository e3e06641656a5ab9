"""The command line: parses, calls the library, sets the exit code, nothing else.

Exit codes: 0 all is well, 1 a source failed (its row says why), 2 bad input, 130 interrupted;
of certify 0 holds, 1 violated, 3 undecided.
PyTorch is imported by the commands when they run, so that help answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from nppr import console
from nppr.allocator import keep_freed_memory
from nppr.cli.assess import assess, evaluate
from nppr.cli.bound import bound
from nppr.cli.certify import certify
from nppr.cli.compare import compare
from nppr.cli.doctor import doctor
from nppr.cli.fit import fit
from nppr.cli.ranks import divided
from nppr.cli.report import report
from nppr.cli.spectrum import spectrum
from nppr.cli.study import StudyCommand, study
from nppr.cli.train import train
from nppr.errors import NpprError

__all__ = ["main", "run"]

EXAMPLES = """
\b
Examples:
  nppr assess
      the demo: a small network on scikit-learn's digits, in seconds
  nppr assess --sources gaussian,uniform:scale=0.5 --eps 8/255 --draws 200
      choose the sources, their options, the budget and the draws
  nppr assess --sources pgd:steps=20:restarts=5 --norm l2 --eps 0.5
      an attack in the Euclidean norm
  nppr assess --model resnet20 --weights w.safetensors --data cifar-10-batches-py --eps 8/255
      a network of the zoo with your weights on CIFAR-10
  nppr assess --model my_model.py:make --data photos/ --resize 64 --eps 4/255
      your own model (this runs my_model.py) on a folder of images
  nppr assess --sources nppr,uniform --dependency input --floor 0,0.5 --eps 8/255
      the worst noise found that may depend on the input, and one that is half Uniform noise
  nppr fit --dependency label --out runs/label
  nppr evaluate --distribution runs/label --eps 0.05
      learn the noise once, measure it again at another radius or on another classifier
  nppr spectrum --dependency independent
      from attack-like to noise-like: NPPR against the least randomness rho
  nppr assess --sources all --inputs 500 --eps 8/255
      the paper's table: noise, attacks, AutoAttack, corruptions, stress
  nppr assess --sources uniform,nppr --precision 0.01
      more inputs, then more draws, until every PR and NPPR is known to one point
  nppr evaluate --distribution runs/label --rare --rare-calls 500000
      failures that are rarer than one in the draws, by multilevel splitting
  nppr assess --radii 2/255,4/255,16/255 --eps 8/255
      the same sources at other radii too
  nppr doctor --model my_model.py:make --data photos/
      can the numbers of this model on these data be trusted?
  nppr bound --reference uniform --density-ratio 1,2,5,10
      robustness at least, under all noise of density up to c times that of Uniform noise
  nppr certify --source uniform --at-least 0.9
      is robustness at least 90 %? Draws until that is settled (exit code 0, 1 or 3)
  nppr report runs/mine --figures svg,pdf
      render the page of a run again, and its figures as files; --format latex: its table
  nppr compare runs/resnet20 runs/resnet32
      two runs side by side: paired differences, ranks, a page and tables
  nppr study studies/small/digits_main.toml --plan
      a grid of assessments from one file: what it would run; without --plan it runs
  nppr assess --draws 1000 --out runs/mine --resume
      continue an interrupted run: the same command with --resume
  nppr train digits-cnn --out digits.safetensors
      train the demo's network from scratch
  nppr train resnet18 --data cifar-10-batches-py --method pgd --eps 8/255
      adversarial training
"""

INTERRUPTED = 130
"""What the framework returns for a Ctrl-C: 128 plus the number of the signal."""

app = typer.Typer(
    name="nppr",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (assess, fit, evaluate, spectrum, bound, certify, doctor, report, compare):
    app.command(epilog=EXAMPLES)(command)
app.command(epilog=EXAMPLES)(train)
app.command(cls=StudyCommand, epilog=EXAMPLES)(study)


@app.callback(epilog=EXAMPLES, invoke_without_command=True)
def _nppr(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    """How robust is a classifier at least, when the noise it will meet is unknown?"""
    if show_version:
        console.out.print(f"nppr {version('nppr')}")
        raise typer.Exit


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every error of the user is one line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with divided(given):
            code = app(args=given or ["--help"], standalone_mode=False)
            if code == INTERRUPTED:
                raise KeyboardInterrupt  # no waiting for other ranks
    except KeyboardInterrupt:
        console.show_error("interrupted; what is finished is kept, add --resume to go on")
        return INTERRUPTED
    except NpprError as error:
        console.show_error(str(error))
        return 2
    except TyperException as error:
        console.show_error(console.usage_message(error))
        return 2
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The `nppr` command."""
    keep_freed_memory()
    sys.exit(run())
