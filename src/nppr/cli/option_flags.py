"""From groups of options to flags: a command takes groups, the command line its single options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic.fields import FieldInfo

from nppr.options import Options

PLAIN = (str, int, float, bool, Path)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of its groups one by one, as flags.

    Parameters that are no group keep their own declaration.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Options]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, Options):
            groups[name] = kind
            parameters += [_flag(each, field) for each, field in kind.model_fields.items()]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @wraps(command)
    def flat(**given: Any) -> None:
        chosen = {
            name: kind(**{each: given.pop(each) for each in kind.model_fields})
            for name, kind in groups.items()
        }
        command(**chosen, **given)

    arguments = [each for each in parameters if each.default is inspect.Parameter.empty]
    flags = [each for each in parameters if each.default is not inspect.Parameter.empty]
    ordered = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in [*arguments, *flags]]
    flat.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in ordered}
    return flat


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    flag = f"--{extra['flag'] or name.replace('_', '-')}"
    if field.default is True:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    panel = extra["panel"]
    declared = typer.Option(
        flag, help=field.description, rich_help_panel=str(panel) if panel else None
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[_plain_type(field.annotation), declared],
    )


def _plain_type(annotation: Any) -> Any:
    """The type of a flag's text; what is not plain, such as several numbers, is read from text."""
    parts = [each for each in get_args(annotation) or (annotation,) if each is not type(None)]
    plain = parts[0] if parts[0] in PLAIN else str
    optional = type(None) in get_args(annotation)
    return plain | None if optional else plain
