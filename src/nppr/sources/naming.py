"""How a source is written: its name and the options that are not the default."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

__all__ = ["all_options", "options", "spelled"]


def options(source_type: Any) -> dict[str, Any]:
    """The options of a source type with their defaults: its fields but for the budget."""
    return {
        field.name: field.default for field in fields(source_type) if field.default is not MISSING
    }


def all_options(source: Any) -> dict[str, Any]:
    """Every option of a source with its value, defaults too; nothing for a source of the user's."""
    if not is_dataclass(source):
        return {}
    return {name: getattr(source, name) for name in options(type(source))}


def spelled(source: Any, name: str | None = None) -> str:
    """The source as it is written on a command line, such as `uniform:scale=0.5`.

    `name` is that of its type in lower case unless given.
    """
    parts = [name or type(source).__name__.lower()]
    for name, default in options(type(source)).items():
        value = getattr(source, name)
        if value != default:
            text = str(value).removesuffix(".0").lower()
            parts.append(f"{name.replace('_', '-')}={text}")
    return ":".join(parts)
