"""JSON by the standard library and answers of Redis by redis-py, with the functions that codec.py has from orjson and
hiredis.

Guarantees the bytes that orjson writes, except that the exponent of a number may be written in another way. Like orjson
it refuses integers of more than 64 bits, which orjson would read as floats.
"""

from __future__ import annotations

import json
import math
from datetime import date, time
from enum import Enum
from typing import Any
from uuid import UUID

from redis.exceptions import ResponseError

#: Keys need not be strings in any case.
OPT_NON_STR_KEYS = 0

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def dumps(value: Any, /, option: int = 0) -> bytes:
    text = json.dumps(_checked(value), ensure_ascii=False, separators=(",", ":"), default=_as_text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"str is not valid UTF-8: {error.reason}") from None


def _checked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _checked(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(each) for each in value]
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise TypeError("Integer exceeds 64-bit range")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, Enum):
        return _checked(value.value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def loads(document: bytes) -> Any:
    try:
        return json.loads(document.decode())
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def pack_command(command: tuple[Any, ...]) -> bytes:
    arguments = [each if isinstance(each, bytes) else str(each).encode() for each in command]
    sized = [b"$%d\r\n%b\r\n" % (len(each), each) for each in arguments]
    return b"*%d\r\n%b" % (len(sized), b"".join(sized))


def reader_of(connection: Any) -> Any:
    return Answers(connection)


class Answers:
    """Has the method of a hiredis.Reader that is called before anything is read. It waits for the answer."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def gets(self) -> Any:
        try:
            return self._connection.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error
