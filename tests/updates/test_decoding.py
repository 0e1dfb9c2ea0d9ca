"""Decoding of JSON that Python cannot read completely."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlanes.updates.parsing import MOST_DIGITS, Cut, CutUpdate, read

DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = b"9" * (MOST_DIGITS + 1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"update_id":7,"a":[{"b":1}],"c":"]"}',
        b'{"update_id":7,"a":' + b"9" * MOST_DIGITS + b"}",
        rb'{"update_id":7,"a":"\ud83d"}',
        b'{"a":"' + LONG + b'","b":' + LONG + b'.0,"c":1e-3}',
    ],
)
def test_valid_json_is_read_whole(body: bytes) -> None:
    assert read(body) == json.loads(body)
    assert type(read(body)) is dict


@pytest.mark.parametrize("part", [DEEP, b'{"x":' * 5_000 + b"1" + b"}" * 5_000, LONG, b"-" + LONG])
def test_unreadable_parts_are_cut_and_the_rest_is_kept(part: bytes) -> None:
    update = read(rb'{"update_id":7,"text":"[\"{","a":{"b":[1,' + part + rb',2]},"c":[3]}')
    assert isinstance(update, CutUpdate)
    assert (update["update_id"], update["text"], update["c"]) == (7, '["{', [3])
    assert found(update, Cut)


@pytest.mark.parametrize("part", [DEEP, LONG])
def test_only_the_cut_update_of_a_batch_is_marked(part: bytes) -> None:
    answer = read(b'{"ok":true,"result":[{"update_id":1},{"update_id":2,"a":' + part + b'},{"update_id":3,"a":"NaN"}]}')
    assert [type(update) for update in answer["result"]] == [dict, CutUpdate, dict]


@pytest.mark.parametrize(
    "body", [b"", b"{", DEEP[:-1], DEEP[1:], DEEP + b"x", b'"' + DEEP, b'{"a":' + LONG, b"\xff\xfe{}"]
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - from json or from us
        read(body)


def found(value: Any, kind: type) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) or any(found(each, kind) for each in inner)
