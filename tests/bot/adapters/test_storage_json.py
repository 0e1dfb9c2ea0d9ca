"""Data that frameworks store is restored unchanged."""

from __future__ import annotations

import enum
import json
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from chatlanes.bot.adapters import storage_json


class Colour(enum.Enum):
    RED = 1


class Sizes(enum.IntFlag):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True, slots=True)
class Product:
    name: str
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.5, "text", b"\0bytes", [1, [2]], {"a": {"b": None}}),
        *({1: "a", None: "b", (1, "x"): "c", Colour.RED: "d"}, {"\0set": [1]}, {"\0": 1, "b": 2}, {}),
        *((1, (2, "x")), {3, 1, 2}, frozenset({(1,), Colour.RED}), deque([1]), Counter("aab")),
        *(defaultdict(int, {7: 1}), defaultdict(list, a=[1])),
        *(datetime(2026, 1, 2, 3, 4, 5, 6, UTC), date(2026, 1, 2), time(1, 2), timedelta(days=-1, seconds=5)),
        *(Decimal("1.10"), UUID(int=5), Colour.RED, Sizes.SMALL, Sizes.SMALL | Sizes.LARGE, [Product("a", ["b"])]),
    ],
    ids=lambda value: type(value).__name__,  # the repr of a set differs between pytest's processes
)
def test_values_round_trip_with_their_type(value: Any) -> None:
    text = storage_json.text(value)
    again = storage_json.value(text)
    assert (again, type(again)) == (value, type(value))
    assert storage_json.text(again) == text


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": [object()]}, r"user_data\['a'\]\[0\] is a object, which cannot be stored"),
        (Colour, "user_data is a EnumType"),
        (defaultdict(lambda: 1), "a defaultdict of <lambda> cannot be stored: use one of int"),
    ],
    ids=["a plain object", "a class", "a defaultdict of a lambda"],  # the same in each of pytest's processes
)
def test_error_names_the_value_that_cannot_be_stored(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        storage_json.text(value, "user_data")


@pytest.mark.parametrize(
    "path", ["os:system", "tests.bot.adapters.test_storage_json:Gone", "nowhere:Colour", "builtins:dict"]
)
def test_only_data_classes_are_restored(path: str) -> None:
    with pytest.raises(LookupError, match=f"the stored value is a {path}"):
        storage_json.value(json.dumps({"\0enum": [path, "RED"]}))
