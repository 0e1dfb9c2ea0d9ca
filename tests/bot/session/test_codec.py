"""The values that a session can hold, and the errors for all others."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from typing import Any

import pytest

from chatlanes.bot.session.codec import MOST_BYTES, SessionError, check_keys, decode, encode


class Level(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"n": 1, "text": "дом 👍", "none": None, "yes": True, "float": 0.1, "big": 10**30},
        {"nested": {"list": [1, [2, {"three": 3}]], "": {}}},
        {"half an emoji": "\ud83d"},
        {"\ud83d": 1},
    ],
)
def test_json_values_round_trip(data: dict[str, Any]) -> None:
    check_keys(data)
    assert decode(encode(data), "session:1/chat:7") == data


def test_tuples_and_enums_become_plain_values() -> None:
    assert decode(encode({"pair": (1, 2), "colour": Level.RED}), "") == {"pair": [1, 2], "colour": 1}


def holding_itself() -> dict[str, Any]:
    data: dict[str, Any] = {"a": []}
    data["a"].append(data)
    return data


def deep() -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(100_000):
        data = {"a": data}
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": {1, 2}}, r"session\['a'\] is a set, which JSON cannot represent"),
        ({"a": [0, {"b": datetime.date(2026, 1, 1)}]}, r"session\['a'\]\[1\]\['b'\] is a date, "),
        ({"a": ({"b": b"x"},)}, r"session\['a'\]\[0\]\['b'\] is a bytes, "),
        ({"a": decimal.Decimal(1)}, r"session\['a'\] is a Decimal, "),
        ({"a": math.nan}, r"session\['a'\] is nan, which JSON cannot represent"),
        ({"a": [math.inf]}, r"session\['a'\]\[0\] is inf, "),
        ({"a": {(1, 2): 3}}, r"session\['a'\] has the key \(1, 2\) \(tuple\)"),
        (holding_itself(), r"session\['a'\]\[0\] contains itself"),
        (deep(), "the session is nested too deeply"),
        ({"a": "x" * MOST_BYTES}, r"the session has 1,048,584 bytes as JSON, and at most 1,048,576 are allowed"),
    ],
)
def test_error_names_path_and_type(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SessionError, match=message):
        encode(data)


@pytest.mark.parametrize("key", [5, 0.5, True, None])
def test_keys_must_be_strings(key: object) -> None:
    with pytest.raises(SessionError, match=rf"session\['carts'\] has the key {key!r} \({type(key).__name__}\)"):
        check_keys({"carts": {key: "apples"}})


@pytest.mark.parametrize("stored", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_invalid_stored_value_is_named_with_its_key(stored: bytes) -> None:
    with pytest.raises(SessionError, match="the value of session:1/chat:7 in Redis is not a JSON object"):
        decode(stored, "session:1/chat:7")
