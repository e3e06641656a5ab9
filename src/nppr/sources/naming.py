"""How a source is written: its name and the options that are not the default."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

__all__ = ["options", "spelled"]


def options(source_type: Any) -> dict[str, Any]:
    """The options of a source type with their defaults: its fields but for the budget."""
    return {
        field.name: field.default for field in fields(source_type) if field.default is not MISSING
    }


def spelled(source: Any) -> str:
    """The source as it is written on a command line, such as `uniform:scale=0.5`."""
    parts = [type(source).__name__.lower()]
    for name, default in options(type(source)).items():
        value = getattr(source, name)
        if value != default:
            text = repr(value).removesuffix(".0").lower()
            parts.append(f"{name.replace('_', '-')}={text}")
    return ":".join(parts)
