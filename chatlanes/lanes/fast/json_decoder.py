"""Decodes the arguments in the body of a task message with orjson.

Guarantees the same value as kombu's JSON decoder, or None where only that decoder can decide: a type that JSON does not
have (a date, bytes, a Decimal), an integer of more than 64 bits, a string that is not valid Unicode, and invalid JSON.
"""

from __future__ import annotations

from typing import Any

import orjson

#: (args, kwargs, embed) of Celery's protocol 2, with a list as args because JSON has no tuples.
Arguments = tuple[list[Any], dict[str, Any], dict[str, Any]]

#: kombu's mark of a type that JSON does not have, and how a character of the mark begins if it is escaped.
_MARK = b"__type__"
_ESCAPE, _ESCAPED = b"\\u00", (b"\\u005", b"\\u006", b"\\u007")

#: orjson decodes an integer of more than 64 bits as a float. Such an integer has at least this many digits.
_LONG = b"0" * 19
_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


def arguments_of(body: bytes) -> Arguments | None:
    """The decoded body. None: leave it to Celery's decoder."""
    if _MARK in body or _LONG in body.translate(_DIGITS):
        return None
    if _ESCAPE in body and any(each in body for each in _ESCAPED):
        return None
    try:
        payload = orjson.loads(body)
    except ValueError:
        return None
    if type(payload) is not list or len(payload) != 3:
        return None
    args, kwargs, embed = payload
    if type(args) is not list or type(kwargs) is not dict or type(embed) is not dict:
        return None
    return args, kwargs, embed
