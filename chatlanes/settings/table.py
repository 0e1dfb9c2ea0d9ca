"""The settings as documentation: one row each, as markdown and as `.env.example`, both from the class alone."""

from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from typing import Any, NamedTuple

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from chatlanes.settings.model import Settings


class SettingRow(NamedTuple):
    name: str
    default: str
    unit: str
    meaning: str
    allowed: str
    secret: bool


@cache
def rows() -> Mapping[str, SettingRow]:
    """Field name → its row, in the order of the documentation."""
    return {field: _row(field, info) for field, info in Settings.model_fields.items()}


def markdown(of: Iterable[SettingRow] | None = None) -> str:
    """A table of these settings, or of all: name, default with its unit, what is allowed, meaning."""
    lines = ["| name | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows().values() if of is None else of:
        default = f"`{row.default}`" if row.default else "–"
        lines.append(f"| `{row.name}` | {default} {row.unit}".rstrip() + f" | {escape(row.allowed)} | {row.meaning} |")
    return "\n".join(lines) + "\n"


def env_example() -> str:
    """A `.env` in which every setting stands with its default, commented out."""
    paragraphs = ["# Copy to .env and take away the # of what you change. `chatlanes settings env` wrote this file."]
    for row in rows().values():
        unit = f" ({row.unit})" if row.unit else ""
        paragraphs.append(f"# {row.meaning}\n# Allowed: {row.allowed}{unit}\n#{row.name}={row.default}")
    return "\n\n".join(paragraphs) + "\n"


def _row(field: str, info: FieldInfo) -> SettingRow:
    extra: Any = info.json_schema_extra
    return SettingRow(
        name=field.upper(),
        default=_default(info.default),
        unit=extra["unit"],
        meaning=str(info.description),
        allowed=extra["allowed"],
        secret=SecretStr.__name__ in str(info.annotation),
    )


def _default(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
