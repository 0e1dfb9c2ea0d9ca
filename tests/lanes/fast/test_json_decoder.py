"""Our decoder of message bodies, compared with kombu's."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kombu.utils import json as kombu_json

from celery_lanes.fast.strategy import arguments_of

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.sampled_from(["__type__"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("__type__") | st.just("__value__"), inner),
    max_leaves=8,
)


def _same(one: Any, other: Any) -> bool:
    """Equal in value and type; NaN equals NaN."""
    return repr(one) == repr(other)


@pytest.mark.slow
@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(), VALUES, max_size=2), st.booleans())
@example([], {"": {"__type__": [], "__value__": None}}, False)
def test_decoded_bodies_equal_kombus(args: list[Any], kwargs: dict[str, Any], escapes: bool) -> None:
    try:
        body = json.dumps([args, kwargs, EMBED], ensure_ascii=escapes).encode()
    except UnicodeEncodeError:
        return
    found = arguments_of(body)
    try:
        expected = kombu_json.loads(body)
    except (ValueError, TypeError):  # a marker of kombu with an invalid type
        assert found is None
    else:
        assert found is None or _same(list(found), expected)


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 2), Decimal("1.50"), UUID(int=7), b"bytes", b"\xff", 2**64, -(2**63) - 1]
)
@pytest.mark.parametrize("escaped", ["", "_", "t"])
def test_types_outside_json_are_left_to_kombu(value: Any, escaped: str) -> None:
    body = kombu_json.dumps([[value], {}, EMBED])
    if escaped:
        body = body.replace(escaped, f"\\u{ord(escaped):04x}")
    assert kombu_json.loads(body)[0] == [value]
    assert arguments_of(body.encode()) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[[], {}]", b"[{}, [], {}]", b'{"args": []}', b"[[], {}, null]", b"\xff"])
def test_invalid_bodies_are_left_to_celery(body: bytes) -> None:
    assert arguments_of(body) is None


def test_an_update_is_decoded() -> None:
    order = {"order_id": 2**40, "message": {"text": "ü\n😀 18446744073709551", "date": 1_700_000_000}}
    body = orjson.dumps([[order], {}, EMBED])
    assert arguments_of(body) == ([order], {}, EMBED)
