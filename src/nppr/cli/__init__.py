"""The command line: parses, calls the library, sets the exit code, nothing else.

Exit codes: 0 success, 1 a source failed (its row states why) or the page was not written, 2 bad input,
130 interrupted by Ctrl-C, 143 by SIGTERM; of certify and gate 0 holds, 1 violated, 3 undecided.
PyTorch is loaded with the module of a command, after what was typed has been checked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from nppr.cli import (
    commands,  # noqa: F401  registers them
    console,
)
from nppr.cli.app import FLAGS, app
from nppr.errors import NpprError, RunStopped, VanishedError
from nppr.system.process import keep_freed_memory, make_streams_robust, terminate_like_ctrl_c
from nppr.system.user_code import ProcessEnded

LIBRARY_NAMES = {"radius": "eps", "budget": "eps", "distributions": "distribution"}
"""Names of options by the name of their argument in the library, if it is another."""

INTERRUPTED, TERMINATED = 130, 143
"""Codes after Ctrl-C, which the framework returns too, and SIGTERM: 128 plus the signal's number."""

COMMANDS = tuple(FLAGS)
"""The names of all commands, in the order of `nppr --help`."""


@app.callback(invoke_without_command=True)
def _nppr(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", metavar="")
    ] = False,
) -> None:
    """How badly can unknown noise hurt a classifier, and what robustness can you rely on?"""
    if show_version:
        console.out.print(f"nppr {version('nppr')}")
        raise typer.Exit


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every error of the user is one line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], prog_name="nppr", standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        way = _continuation(given[0])
        console.show_error("interrupted" + (f"; finished work is kept: {way}" if way else ""))
        return INTERRUPTED
    except SystemExit as error:  # nobody reads what is printed
        return error.code if isinstance(error.code, int) and error.code else 1
    except Exception as error:
        if (message := _explain(error, given[0])) is None:
            raise
        console.show_error(message)
        return 2
    return code if isinstance(code, int) else 0


def in_options(message: str, command: str) -> str:
    """Return an error with the name of the option if it begins with an argument of the library.

    >>> in_options("`radius` must be a number > 0, got '-1'. Example: 8/255", "assess")
    "`eps` must be a number > 0, got '-1'. Example: 8/255"
    """
    for name, option in LIBRARY_NAMES.items():
        if message.startswith(f"`{name}`") and option in FLAGS.get(command, ()):
            return f"`{option}`{message.removeprefix(f'`{name}`')}"
    return message


def _continuation(command: str) -> str | None:
    """Return how to continue a command that keeps finished work, None for another."""
    if "resume" in FLAGS.get(command, ()):
        return "add --resume to continue"
    return "the same command continues" if command == "study" else None


def _explain(error: Exception, command: str) -> str | None:
    """Return one line for an error of the user or of the machine, None for any other."""
    if isinstance(error, RunStopped):
        way = None if isinstance(error, VanishedError) else _continuation(command)
        return str(error) + (f" Finished work is kept: {way}." if way else "")
    if isinstance(error, NpprError):
        return in_options(str(error), command)
    if isinstance(error, ProcessEnded):
        return f"code of the model or the data must not end the program, but {error}."
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        message = f"{error.format_message()}.".replace("?.", "?").replace("..", ".")
        return f"{message} See: {context.command_path if context else 'nppr'} --help"
    if isinstance(error, OSError):
        place = f" {error.filename!r}" if error.filename else ""
        return f"a file cannot be read or written:{place} {error.strerror or error}."
    if isinstance(error, MemoryError | RuntimeError):
        from nppr.models import is_out_of_memory

        if is_out_of_memory(error):
            return (
                "memory ran out. Give smaller --batch-size, --inputs or --resize, or a smaller"
                " model."
            )
    return None


def main() -> NoReturn:
    """The `nppr` command."""
    make_streams_robust()
    keep_freed_memory()
    terminated = terminate_like_ctrl_c()
    code = run()
    sys.exit(TERMINATED if code == INTERRUPTED and terminated() else code)
