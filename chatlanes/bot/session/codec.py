"""Encodes a session as JSON, and explains why a session cannot be encoded. Pure.

A session that is accepted decodes to an equal one, except that tuples become lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

#: A session is read and written whole with each update that uses it, and Redis serves no other client meanwhile.
MOST_BYTES = 1 << 20


class SessionError(Exception):
    """The session cannot be read or stored. The message says what to do."""


def decode(stored: bytes, where: str) -> dict[str, Any]:
    """Raises SessionError."""
    try:
        data = json.loads(stored)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise SessionError(f"the value of {where} in Redis is not a JSON object: correct it, or delete that key")
    return data


def encode(data: Any, name: str = "session", most_bytes: int = MOST_BYTES) -> bytes:
    """Raises SessionError, which names the place and the type of a value that JSON cannot represent.

    `name`: of the value, in errors.
    """
    # Users can send half a surrogate pair, which is not valid UTF-8; json.loads still reads it back.
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded = text.encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(_first_wrong(data, name) or f"the {name} cannot be encoded as JSON: {error}") from None
    if len(encoded) > most_bytes:
        raise SessionError(
            f"the {name} has {len(encoded):,} bytes as JSON, and at most {most_bytes:,} are allowed: "
            f"store large data in a database of your own, and its key in the {name}"
        )
    return encoded


def check_keys(data: Any, name: str = "session") -> None:
    """Raises SessionError for keys that are not text: JSON would convert them to text."""
    wrong = _first_wrong(data, name)
    if wrong:
        raise SessionError(wrong)


def _first_wrong(data: Any, name: str) -> str | None:
    try:
        return next(_wrong(data, name, ()), None)
    except RecursionError:
        return f"the {name} is nested too deeply for JSON"


def _wrong(value: Any, path: str, above: tuple[int, ...]) -> Iterator[str]:
    if id(value) in above:
        yield f"{path} contains itself, which JSON cannot represent"
    elif isinstance(value, dict):
        yield from _wrong_keys(value, path)
        for key, inner in value.items():
            yield from _wrong(inner, f"{path}[{key!r}]", (*above, id(value)))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _wrong(inner, f"{path}[{place}]", (*above, id(value)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, which JSON cannot represent"
    elif not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        yield f"{path} is a {kind}, which JSON cannot represent: use text, numbers, True, False, None, lists and dicts"


def _wrong_keys(value: dict[Any, Any], path: str) -> Iterator[str]:
    for key in value:
        if not isinstance(key, str):
            yield (
                f"{path} has the key {key!r} ({type(key).__name__}): JSON keys are text, so it would be read back as "
                f"{str(key)!r}; write {str(key)!r}"
            )
