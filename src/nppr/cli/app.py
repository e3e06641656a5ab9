"""Make commands of trees of settings: every setting becomes a flag."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from nppr.core.transform_parameters import EDGES, GROUPS, PARAMETERS
from nppr.export.documents import EXPORTS
from nppr.formats import require_data, require_model, require_weights
from nppr.noise.admissible_set import NPPR
from nppr.settings import Group, Panel, Setting, build_tree, settings_in
from nppr.source_names import (
    FEWEST_OFFSET_CALLS,
    OFFSET_CALLS,
    OWN_SOURCES,
    added_sources,
    list_names,
)
from nppr.system.registry import BUILT_IN
from nppr.system.specs import RANDOM_WEIGHTS
from nppr.system.user_code import ProcessEnded, contain_exits

LAST = ("seed", "device", "out", "resume", "overwrite", "quiet", "json")
"""Options that do not change the question; `--help` shows them below the others."""

SPECS = {
    "model": require_model,
    "feature-model": require_model,
    "weights": require_weights,
    "feature-weights": require_weights,
    "data": require_data,
}
"""Checks of flags that name a model, weights or data; they need no PyTorch."""

LOCAL = "local"
"""The address of a cluster that is started on this machine, and of --ray without an address."""

LATE_WORDS = re.compile(r"\{(\w+)\}")
"""Names in a help text that are filled in when it is shown: they list what is registered."""


class ExitCode(Exception):
    """Ends a command with an exit code other than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Command(TyperCommand):
    """A command whose option --help is shown without a type; --ray may be given without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after naming the cluster of a bare --ray."""
        return super().parse_args(ctx, _with_address(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names of all sources and parameters."""
        for parameter in self.params:
            text = getattr(parameter, "help", None) or ""
            if LATE_WORDS.search(text):
                parameter.help = escape(fill_words(text))  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


def _with_address(arguments: list[str]) -> list[str]:
    """Return the arguments with an address after a --ray that has none.

    >>> _with_address(["--ray", "study.toml"])
    ['--ray', 'local', 'study.toml']
    """
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        found.append(argument)
        if argument == "--ray" and not (":" in following or following in ("auto", LOCAL)):
            found.append(LOCAL)
    return found


class _Group(TyperGroup):
    """The group of all commands, whose option --help is shown without a type."""

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


def register(name: str, tree: type[Group], module: str) -> None:
    """Make a command: the settings of a tree are its flags, the tree's docstring is its help.

    The last paragraph of the docstring has the examples. The function `execute_NAME` in `module` does
    the work. The module is imported after all flags have been checked.
    """
    settings = settings_in(tree)
    FLAGS[name] = set(settings)
    flags = _parameters(settings)
    by_parameter = {each.replace("-", "_"): each for each in settings}

    def run_command(context: typer.Context, **given: Any) -> None:
        typed = {
            by_parameter[each]: value
            for each, value in given.items()
            if (origin := context.get_parameter_source(each)) and origin.name == "COMMANDLINE"
        }
        options = build_tree(tree, typed)
        require_specs(typed)
        try:
            with contain_exits():
                getattr(import_module(module), f"execute_{name}")(options)
        except (typer.Exit, typer.Abort) as error:  # ours are `ExitCode`
            raise ProcessEnded(f"it raised {type(error).__name__}") from error
        except ExitCode as ended:
            raise typer.Exit(ended.code) from ended

    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    context = inspect.Parameter("context", place, annotation=typer.Context)
    run_command.__signature__ = inspect.Signature([context, *flags])  # type: ignore[attr-defined]
    run_command.__annotations__ = {each.name: each.annotation for each in (context, *flags)}
    *paragraphs, examples = (escape(each) for each in str(inspect.getdoc(tree)).split("\n\n"))
    help_text = "\n\n".join(each.replace("\n", " ") for each in paragraphs)
    app.command(name, cls=Command, help=help_text, epilog=f"Examples:\n{examples}")(run_command)


def require_specs(given: Mapping[str, Any]) -> None:
    """Raise an error of one line if a model, weights or data that a flag names do not exist."""
    for name, check in SPECS.items():
        spec = given.get(name)
        if spec is not None and (check, spec) != (require_weights, RANDOM_WEIGHTS):
            check(spec, name)


def name_folder(first: str, second: str, settings: object) -> Path:
    """Return a folder under runs/ with two readable names and a hash of the settings."""
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    names = (Path(name).stem or name for name in (first, second))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(names))
    return Path("runs") / f"{readable}-{digest}"


def _parameters(settings: Mapping[str, Setting]) -> list[inspect.Parameter]:
    """Return a parameter for each setting: by panel, those that the command declares itself first."""
    panels = list(Panel)

    def place(flag: str) -> tuple[Any, ...]:
        setting = settings[flag]
        last = LAST.index(flag) + 1 if flag in LAST else 0
        own = setting.is_own
        return panels.index(setting.extra["panel"]), last, not own, setting.extra["order"]

    return [_parameter(flag, settings[flag]) for flag in sorted(settings, key=place)]


def _parameter(key: str, setting: Setting) -> inspect.Parameter:
    """Return the flag or positional argument of a setting; its value stays text for the tree."""
    extra, info, default = setting.extra, setting.info, setting.info.default
    flag, _, metavar = (extra["flag"] or f"--{setting.name.replace('_', '-')}").partition(" ")
    kinds = [each for each in get_args(setting.kind) if each not in (type(None), ...)]
    many = get_origin(setting.kind) is tuple or get_origin(kinds[0] if kinds else None) is tuple
    kind: Any = str if many else kinds[0] if kinds else setting.kind
    described = str(info.description)
    text = described if LATE_WORDS.search(described) else escape(described)
    shown = {"help": text, "rich_help_panel": extra["panel"].value}
    declared: Any
    if not flag.startswith("-"):
        declared = typer.Argument(metavar=flag, help=shown["help"])
        default = inspect.Parameter.empty if info.is_required() else default
    elif kind is bool:
        both = flag if default is False else f"{flag}/--no-{flag.removeprefix('--')}"
        declared = typer.Option(both, metavar="", show_default=False, **shown)
        kind = bool | None
    else:
        kind_name = "floats" if many else kind.__name__.lower()
        declared = typer.Option(flag, metavar=metavar or f"<{kind_name}>", **shown)
        kind = list[str] | None if get_origin(kind) is list else str | None
        if default is not None:
            numbers = default if isinstance(default, tuple) else [default]
            default = ",".join(map(str, numbers)) or None
    return inspect.Parameter(
        key.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, declared],
    )


def fill_words(text: str) -> str:
    """Return a help text with the names in braces replaced by lists of what is registered."""
    # Not above: it needs NumPy, which no check of what is typed needs.
    from nppr.statistics.noise_sets import DEFAULT_SIZES, MEANINGS, RATIO

    sizes = {kind: sizes.split("+") for kind, sizes in DEFAULT_SIZES.items()}
    words: dict[str, Callable[[], str]] = {
        "sources": describe_sources,
        "parameters": describe_parameters,
        "exports": describe_exports,
        "edges": lambda: "|".join(EDGES),
        "noise_sets": lambda: ", ".join(f"{kind} ({text})" for kind, text in MEANINGS.items()),
        "set_examples": lambda: ", ".join(f"{kind}:{each[-1]}" for kind, each in sizes.items()),
        "ratios": lambda: ",".join(sizes[RATIO]),
        "offset_calls": lambda: str(OFFSET_CALLS),
        "fewest_offset_calls": lambda: str(FEWEST_OFFSET_CALLS),
    }
    return LATE_WORDS.sub(lambda found: words[found[1]](), text)


def describe_sources() -> str:
    """Return the names of all sources, those with the same options together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, entry in OWN_SOURCES.items():
        names = [each.replace("_", "-") for each in entry.options]
        kinds.setdefault(tuple(names), []).append(name)
    listed = [f"{', '.join(names)}: {', '.join(options)}." for options, names in kinds.items()]
    added = [f"{name} (from {origin})" for name, origin in added_sources().items()]
    presets = [name for entry in OWN_SOURCES.values() for name in entry.presets]
    default = [name for name in list_names(OWN_SOURCES, False) if OWN_SOURCES[name].default]
    return " ".join(
        [
            "Sources separated by commas, each with its options after colons, as in pgd:steps=20.",
            "nppr: the worst noise found by a search (panels Noise and Search).",
            *listed,
            *([f"Installed: {', '.join(added)}."] if added else []),
            f"Presets: {', '.join(presets)}. all: every source.",
            f"Default of assess: {','.join([NPPR, *default])}.",
            f"With --transform: {', '.join(list_names(OWN_SOURCES, True))}.",
        ]
    )


def describe_parameters() -> str:
    """Return the names of the parameters of transformations, with their units."""
    units = (name + f" ({known.unit})" * bool(known.unit) for name, known in PARAMETERS.items())
    return ", ".join([*GROUPS, *units])


def describe_exports() -> str:
    """Return the names of all documents, with the package that brings one."""
    origins = ((name, EXPORTS.origin_of(name)) for name in EXPORTS.names())
    return ", ".join(name if at == BUILT_IN else f"{name} (from {at})" for name, at in origins)
