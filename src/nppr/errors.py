"""All exceptions of nppr, as one tree below `NpprError`.

Every message names the argument, the expected and the given value, and the fix. The command line
shows it as one line and exits with code 2.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All control characters except tabs and line feeds, and those that change the writing direction."""


class NpprError(Exception):
    """Base of every error that nppr raises on purpose."""


class InputError(NpprError):
    """Input of the caller that cannot be used."""


class BudgetError(InputError):
    """An unknown norm, or a radius that is not a positive number."""


class SpecError(InputError):
    """An unknown or malformed name, source, option or number."""


class PluginError(InputError):
    """An installed package that adds to nppr but fails, or uses a name that is taken."""


class DataError(InputError):
    """Images or labels that cannot be assessed."""


class NoFitDataError(DataError):
    """Data without inputs for fitting or for choosing a distribution."""


class ClassifierError(InputError):
    """A model that is not a classifier of the given data."""


class TaskError(InputError):
    """A predicate that cannot judge the outputs of a model."""


class RunStopped(NpprError):
    """An error that ends a run, not only the current source; `resume` continues the run."""


class ModelUnavailableError(RunStopped):
    """A model that no longer responds, such as a service that is down."""


class WeightsError(InputError):
    """A weights file that is missing, damaged or for another architecture."""


class DistributionError(InputError):
    """A file of a learned distribution that is missing, damaged or of another version."""


class RecordError(InputError):
    """A file of tensors and a record that is missing or damaged."""


class RunFolderError(InputError):
    """A run folder that cannot be written, or that holds another run."""


class WriteError(RunStopped, RunFolderError):
    """A result file that cannot be written: a full disk or a read-only folder."""


class VanishedError(WriteError):
    """A run folder that was removed during the run."""


class BudgetBreach(NpprError):
    """A source returned a perturbation outside the budget it declares."""


class GradientError(NpprError):
    """A source needs gradients that the classifier does not provide."""


class FitError(NpprError):
    """A fit whose loss or gradients became NaN or infinite."""


class SplitError(NpprError):
    """Only a tally of the evaluate split may become an estimate."""


def require_at_most(argument: str, value: float | None, most: float) -> None:
    """Raise `SpecError` if a value exceeds its limit.

    >>> require_at_most("draws", 10, 100)
    """
    if value is not None and value > most:
        raise SpecError(f"`{argument}` must be at most {most:,}, got {value:,}.")


def reason_of(error: BaseException) -> str:
    """Return the message of an error of user code as one line."""
    try:
        return " ".join(str(error).split())[:300] or type(error).__name__
    except Exception:  # its __str__ may fail too
        return type(error).__name__


def mark_controls(text: str) -> str:
    r"""Replace control characters, which a terminal would obey, by a visible mark.

    >>> mark_controls("a\x1b[2Jb\n")
    'a�[2Jb\n'
    """
    return _CONTROLS.sub("\ufffd", text)


def unknown(argument: str, given: str, valid: Iterable[str]) -> SpecError:
    """Return the error for a name that is not in a list, with the nearest valid name.

    >>> str(unknown("source", "gausian", ["gaussian", "uniform"]))
    "`source` must be one of gaussian, uniform, got 'gausian'. Did you mean 'gaussian'?"
    """
    names = sorted(valid)
    message = f"`{argument}` must be one of {', '.join(names)}, got {given!r}."
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    return SpecError(message + (f" Did you mean {near[0]!r}?" if near else ""))
