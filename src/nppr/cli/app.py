"""From a model of options to a command: every field becomes a flag."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from nppr.options import Options, OptionsT, Panel, checked_options, flag_name
from nppr.specs import RANDOM, check_data, check_model, check_weights
from nppr.user_code import ProcessEnded, contained

TYPED = "COMMANDLINE"
"""Where the value of an option comes from that was typed."""

LAST = ("seed", "device", "out", "resume", "overwrite", "quiet", "as_json")
"""Options that say nothing about the question; `--help` shows them below the others."""

SPECS = {
    "model": check_model,
    "feature_model": check_model,
    "weights": check_weights,
    "feature_weights": check_weights,
    "data": check_data,
}
"""Options that name a file or a thing of ours: a wrong name is found before PyTorch is loaded."""


class ExitCode(Exception):
    """A command is complete, with an exit code other than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Command(TyperCommand):
    """A command whose flag --help shows no type, as it takes no value."""

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


class _Group(TyperGroup):
    """The same for `nppr` itself."""

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


def _without_type(help_option: Any) -> Any:
    help_option.metavar = ""
    return help_option


app = typer.Typer(
    name="nppr",
    cls=_Group,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with the demo: nppr assess. Options and examples: nppr COMMAND --help.",
)


FLAGS: dict[str, set[str]] = {}
"""Names of the flags of every command, without dashes."""


def command(
    examples: str, kind: type[TyperCommand] = Command
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Make a function of one model of options a command, with its docstring and examples as help."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        model: type[Options] = get_type_hints(function)["options"]
        flags = _flags(model)
        fields = model.model_fields
        FLAGS[function.__name__] = {flag_name(each, fields[each]) for each in fields}

        @wraps(function)
        def flat(context: typer.Context, **given: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in given}
            typed = [name for name, source in sources.items() if source and source.name == TYPED]
            options = checked_specs(model, given).with_typed(typed)
            try:
                with contained():
                    function(options)
            except (typer.Exit, typer.Abort) as error:  # ours are `ExitCode`
                raise ProcessEnded(f"it raised {type(error).__name__}") from error
            except ExitCode as ended:
                raise typer.Exit(ended.code) from ended

        place = inspect.Parameter.POSITIONAL_OR_KEYWORD
        context = inspect.Parameter("context", place, annotation=typer.Context)
        flat.__signature__ = inspect.Signature([context, *flags])  # type: ignore[attr-defined]
        flat.__annotations__ = {each.name: each.annotation for each in (context, *flags)}
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        text = "\n\n".join(escape(each.replace("\n", " ")) for each in paragraphs)
        epilog = f"Examples:\n{escape(inspect.cleandoc(examples))}"
        app.command(function.__name__, cls=kind, help=text, epilog=epilog)(flat)
        return function

    return register


def checked_specs(model: type[OptionsT], given: dict[str, Any]) -> OptionsT:
    """The options; the first value that is not of its type is an error of one line."""
    options = checked_options(model, given)
    for name, check in SPECS.items():
        spec = getattr(options, name, None)
        if spec is not None and (check, spec) != (check_weights, RANDOM):
            check(spec, name.replace("_", "-"))
    return options


def _flags(model: type[Options]) -> list[inspect.Parameter]:
    """A parameter for each field: by panel, the options of this command alone first."""
    own = inspect.get_annotations(model)
    panels = list(Panel)

    def place(name: str) -> tuple[Any, ...]:
        extra = _extra(model.model_fields[name])
        last = LAST.index(name) + 1 if name in LAST else 0
        return panels.index(extra["panel"]), last, name not in own, extra["order"]

    return [_flag(name, model.model_fields[name]) for name in sorted(model.model_fields, key=place)]


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    """The flag or positional argument of a field; its value stays text, which the model reads."""
    extra, default = _extra(field), field.default
    flag, _, metavar = (extra["flag"] or f"--{name.replace('_', '-')}").partition(" ")
    kinds = [each for each in get_args(field.annotation) if each is not type(None)]
    kind: Any = kinds[0] if kinds else field.annotation
    shown = {"help": escape(str(field.description)), "rich_help_panel": extra["panel"].value}
    declared: Any
    if not flag.startswith("-"):
        declared = typer.Argument(metavar=flag, help=shown["help"])
        default = inspect.Parameter.empty if field.is_required() else default
    elif kind is bool:
        both = flag if default is False else f"{flag}/--no-{flag.removeprefix('--')}"
        declared = typer.Option(both, metavar="", show_default=False, **shown)
        kind = bool | None
    else:
        kind_name = "floats" if get_origin(kind) is tuple else kind.__name__.lower()
        declared = typer.Option(flag, metavar=metavar or f"<{kind_name}>", **shown)
        kind = list[str] | None if get_origin(kind) is list else str | None
        if default is not None:
            numbers = default if isinstance(default, tuple) else [default]
            default = ",".join(map(str, numbers))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared]
    )


def _extra(field: FieldInfo) -> dict[str, Any]:
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra
