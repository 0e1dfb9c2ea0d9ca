"""A session as JSON, and what is wrong with one that JSON cannot hold. Pure.

Promises that what it takes comes back equal, but for tuples, which come back as lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

#: A session is read and written whole with each update that uses it, and Redis serves nobody else meanwhile.
MOST_BYTES = 1 << 20


class SessionError(Exception):
    """The session cannot be had, or cannot be kept. The text says what to do."""


def decode(stored: bytes, where: str) -> dict[str, Any]:
    """Raises SessionError."""
    try:
        data = json.loads(stored)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise SessionError(f"what Redis holds under {where} is no JSON object: correct it, or delete that key")
    return data


def encode(data: dict[str, Any]) -> bytes:
    """Raises SessionError, which names the place and the type of what does not fit."""
    # Half an emoji, which users can send, is no UTF-8; json.loads reads it back all the same.
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded = text.encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(_first_wrong(data) or f"the session cannot be JSON: {error}") from None
    if len(encoded) > MOST_BYTES:
        raise SessionError(
            f"the session would be {len(encoded):,} bytes of JSON, and {MOST_BYTES:,} are the most: "
            "keep large data in a database of your own, and its key in the session"
        )
    return encoded


def check_keys(data: dict[str, Any]) -> None:
    """Raises SessionError for keys that JSON would turn into text: they would come back as others."""
    wrong = _first_wrong(data)
    if wrong:
        raise SessionError(wrong)


def _first_wrong(data: Any) -> str | None:
    try:
        return next(_wrong(data, "session", ()), None)
    except RecursionError:
        return "the session is nested too deeply for JSON"


def _wrong(value: Any, path: str, above: tuple[int, ...]) -> Iterator[str]:
    if id(value) in above:
        yield f"{path} holds itself: JSON cannot say that"
    elif isinstance(value, dict):
        yield from _wrong_keys(value, path)
        for key, inner in value.items():
            yield from _wrong(inner, f"{path}[{key!r}]", (*above, id(value)))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _wrong(inner, f"{path}[{place}]", (*above, id(value)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, a number that JSON does not have"
    elif not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        yield f"{path} is a {kind}, which JSON cannot hold: keep text, numbers, True, False, None, lists and dicts"


def _wrong_keys(value: dict[Any, Any], path: str) -> Iterator[str]:
    for key in value:
        if not isinstance(key, str):
            yield (
                f"{path} has the key {key!r} ({type(key).__name__}): keys of JSON are text, and it would come back as "
                f"another one; write {str(key)!r}"
            )
