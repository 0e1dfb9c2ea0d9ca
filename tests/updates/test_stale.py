"""Updates that are too old."""

from __future__ import annotations

import time

import pytest

from chatlanes.bot import Context
from chatlanes.updates.parsing import KINDS, LIFE_S, is_stale


@pytest.mark.parametrize(
    ("kind", "life_s"),
    [
        ("inline_query", 30),
        ("callback_query", 150),
        ("shipping_query", 150),
        ("pre_checkout_query", 150),
        ("chosen_inline_result", 600),
    ],
)
def test_update_is_stale_after_its_life_at_telegram(kind: str, life_s: float) -> None:
    assert not is_stale(kind, life_s)
    assert is_stale(kind, life_s + 0.1)


def test_other_kinds_are_never_stale() -> None:
    assert not any(is_stale(kind, 10**6) for kind in KINDS - LIFE_S.keys())
    assert not is_stale("a_kind_of_tomorrow", 10**6)
    assert LIFE_S.keys() <= KINDS


def test_context_knows_whether_it_is_stale() -> None:
    update = {"update_id": 1, "inline_query": {"id": "q", "from": {"id": 9}}}
    ctx = Context(update, api=None, appended_s=time.monotonic() - 31)  # type: ignore[arg-type]
    assert ctx.is_stale
    assert 31 <= ctx.age_s < 60
    assert not Context(update, api=None).is_stale  # type: ignore[arg-type]
    # And of several updates only the age of the oldest is known
    assert not Context([update, update], api=None, appended_s=time.monotonic() - 31).is_stale  # type: ignore[arg-type]
