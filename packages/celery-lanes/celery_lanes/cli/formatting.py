"""Formats ages, numbers, tables and bars; prints texts from Redis. Colours only in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

import click

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
#: Characters of a cell: any key or id that is not an attack.
LONGEST_CELL = 1_000
#: The last ms of the year 9999: a timer may be due later, and datetime knows no later time.
LAST_MS = 253_402_300_799_999
_BLOCKS = " ▏▎▍▌▋▊▉█"
#: C0 except tab and line feed, DEL and C1; U+2028 and U+2029; marks, embeddings, overrides and isolates of direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

#: Characters of the title of a message in a table.
MOST_OF_A_TITLE = 60


def visible(text: str) -> str:
    """The text with its line feeds and tabs; what moves the cursor, hides or reorders is escaped. JSON stays JSON."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str, limit: int) -> str:
    """The text as one line of at most this many characters."""
    escaped = visible(text[:limit]).replace("\n", r"\n").replace("\t", r"\t")
    return escaped if len(text) <= limit and len(escaped) <= limit else f"{escaped[:limit]}…"


_CAPTURED: ContextVar[list[str] | None] = ContextVar("captured", default=None)


def echo(text: str) -> None:
    """Print a text that may contain anything, such as the message of an error."""
    captured = _CAPTURED.get()
    if captured is None:
        click.echo(visible(text))
    else:
        captured.append(visible(text))


@contextmanager
def capturing() -> Iterator[list[str]]:
    """Collects what `echo` gets in this thread, instead of printing it."""
    texts: list[str] = []
    token = _CAPTURED.set(texts)
    try:
        yield texts
    finally:
        _CAPTURED.reset(token)


def address(host: str, port: int) -> str:
    """As in a URL: an address of IPv6 has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def age(seconds: float | None) -> str:
    """`0.3 s`, `12 s`, `4 min`, `3 h`, `2 d`; a dash for None."""
    if seconds is None:
        return "–"
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def duration(seconds: float | None) -> str:
    """Like `age`, but in milliseconds below 0.1 s, such as `4 ms`."""
    return f"{seconds * 1000:.0f} ms" if seconds is not None and 0 < seconds < 0.095 else age(seconds)


def moment(at_ms: float) -> str:
    return datetime.fromtimestamp(min(at_ms, LAST_MS) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def bar(share: float, width: int) -> str:
    """A share (0 to 1) as a bar of at most `width` characters."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[rest] if rest else "")).ljust(width)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table with aligned columns. The columns in `left` are left-aligned, the others right-aligned."""
    rows = [[one_line(cell, LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        click.style(line, bold=True) if number == 0 else line
        for number, line in enumerate(_line(row, widths, left) for row in (head, *rows))
    )


def _line(row: Sequence[str], widths: Sequence[int], left: Sequence[int]) -> str:
    cells = [
        text.ljust(width) if column in left else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
