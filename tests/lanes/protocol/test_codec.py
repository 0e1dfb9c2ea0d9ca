"""With and without celery-lanes[fast], a client writes the same bytes and reads the same values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

import hiredis
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_lanes.protocol import codec, envelope, plain_codec

NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(-1e15, 1e15).filter(lambda x: x == 0 or abs(x) > 1e-4)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from([float("nan"), float("inf"), -float("inf")])
KEYS = st.text() | st.integers(-(2**63), 2**63) | st.booleans() | st.none()


def documents(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAVES,
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner),
        max_leaves=20,
    )


def test_the_fast_extra_is_used_here() -> None:
    assert (codec.dumps, codec.loads, codec.pack_command) == (orjson.dumps, orjson.loads, hiredis.pack_command)


@given(documents(KEYS))
def test_the_same_bytes(value: Any) -> None:
    assert plain_codec.dumps(value) == orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


class Colour(Enum):
    RED = "r"


class Size(int, Enum):
    BIG = 3


def test_the_same_bytes_of_types_that_json_does_not_have() -> None:
    values = [datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 5, 678, UTC), date(2026, 1, 2), time(3, 4, 5)]
    values += [UUID(int=7), Colour.RED, Size.BIG]
    assert plain_codec.dumps(values) == orjson.dumps(values)


@given(st.floats())
def test_the_same_number_with_any_exponent(number: float) -> None:
    ours, theirs = plain_codec.dumps([number]), orjson.dumps([number])
    assert orjson.loads(ours) == plain_codec.loads(theirs) == orjson.loads(theirs)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, {"a": [1 << 70]}, "\ud800", {"\udfff": 1}, b"bytes", {1, 2}])
def test_the_same_is_refused(value: Any) -> None:
    for dumps in (orjson.dumps, plain_codec.dumps):
        with pytest.raises(TypeError):
            dumps(value)


@given(documents(st.text()))
def test_each_reads_what_the_other_has_written(value: Any) -> None:
    ours, theirs = plain_codec.dumps(value), orjson.dumps(value)
    assert orjson.loads(ours) == plain_codec.loads(theirs)


@pytest.mark.parametrize("document", [b"", b"{no json", b"\xff", b'"\xed\xa0\x80"', b"[" * 100_000, b'{"a":1}x'])
def test_both_report_what_is_not_json(document: bytes) -> None:
    for loads in (orjson.loads, plain_codec.loads):
        with pytest.raises(ValueError):  # noqa: PT011 - their texts differ
            loads(document)


#: The stored form of a message as it was before there was a choice.
STORED = '{"headers":{"task":"run","argsrepr":"(\'ü\',)","own":null}}\n[["ü"],{},{}]'.encode()


def test_the_stored_form_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (codec, plain_codec):
        monkeypatch.setattr(envelope, "dumps", module.dumps)
        body = '[["ü"],{},{}]'.encode()
        assert envelope.pack_task("run", "('ü',)", body, own=None) == STORED  # type: ignore[arg-type]


@given(st.lists(st.text() | st.binary() | st.integers() | st.floats(), min_size=1))
def test_the_same_commands(arguments: list[Any]) -> None:
    assert plain_codec.pack_command(tuple(arguments)) == hiredis.pack_command(tuple(arguments))  # type: ignore[arg-type]
