"""Accepted updates and the next offset."""

from typing import Any

import pytest

from chatlanes.poller.bot_api import FORGET_OFFSET_AFTER_S, LARGEST_UPDATE_ID, Offset, newest_id
from chatlanes.poller.filter import of_kinds as admitted
from chatlanes.updates.parsing import CutUpdate

NOW_S = 1_800_000_000.0
MALFORMED = [None, 7, "text", [], {}, {"message": {}}, {"update_id": None}, {"update_id": "5"}, {"update_id": 5.0}]
OUT_OF_RANGE = [{"update_id": True}, {"update_id": -1}, {"update_id": LARGEST_UPDATE_ID + 1}]


def update(update_id: int, kind: str = "message") -> dict[str, Any]:
    return {"update_id": update_id, kind: {}}


@pytest.mark.parametrize(
    ("before", "batch", "expected"),
    [
        (None, [], None),
        (8, [], 8),
        (None, [update(7)], 8),
        (8, [update(8), update(9)], 10),
        (8, [update(9), update(8)], 10),
        (8, [update(8), {"message": {}}, update(9), "text"], 10),
        (8, [update(8), {"update_id": 10**12}], 9),
        (8, [CutUpdate(update(9))], 10),
        (900, [update(5), update(6)], 7),  # Telegram has restarted the ids
        (8, [*MALFORMED, *OUT_OF_RANGE], 8),
    ],
)
def test_offset_follows_the_highest_valid_id(before: int | None, batch: list[Any], expected: int | None) -> None:
    position = Offset(before, NOW_S).after(batch, NOW_S)
    assert position.offset_at(NOW_S) == expected


@pytest.mark.parametrize("garbage", [*MALFORMED, *OUT_OF_RANGE])
def test_garbage_gives_no_offset(garbage: Any) -> None:
    assert newest_id([garbage]) is None


def test_first_request_has_no_offset() -> None:
    assert Offset().offset_at(NOW_S) is None


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (-3600.0, 8),  # the clock was set back
        (0.0, 8),
        (FORGET_OFFSET_AFTER_S - 1, 8),
        (FORGET_OFFSET_AFTER_S, None),
        (FORGET_OFFSET_AFTER_S * 100, None),
    ],
)
def test_offset_expires_before_ids_may_restart(age_s: float, expected: int | None) -> None:
    position = Offset().after([update(7)], NOW_S)
    assert position.offset_at(NOW_S + age_s) == expected


def test_empty_batches_do_not_renew_an_offset() -> None:
    position = Offset().after([update(7)], NOW_S).after([], NOW_S + FORGET_OFFSET_AFTER_S)
    assert position.offset_at(NOW_S + FORGET_OFFSET_AFTER_S) is None


def test_malformed_updates_pass_the_kind_filter() -> None:
    batch = [update(1), update(2, "poll"), {"update_id": 3}, "text", {"message": {}}, update(4)]
    assert admitted(batch, frozenset({"message"})) == [update(1), "text", {"message": {}}, update(4)]


def test_without_allowed_updates_everything_is_admitted() -> None:
    batch = [update(1), update(2, "brand_new_kind"), None]
    assert admitted(batch, frozenset()) == batch
