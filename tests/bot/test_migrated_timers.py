"""The writes that move the timers of a group to its supergroup."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from chatlanes.bot.migrated_timers import Migration, _moves, set_again
from chatlanes.bot.timers import TimerPlan, content_of
from chatlanes.lanes.protocol.commands import MoveTimer, Set
from chatlanes.lanes.protocol.replies import Read, StoredTimer
from chatlanes.updates.intake import pack_update

MIGRATION = Migration(-5, -1005)
OLD, NEW, RECORD = "7/chat:-5", "7/chat:-1005", "migrated:7/-5"


def stored(content: dict[str, Any], lanes: list[str]) -> StoredTimer:
    packed = pack_update("(timer, chat -5)", orjson.dumps({"timer": content}))
    return StoredTimer(OLD, "tea", 90, "7:timer:90:1", "updates.old", lanes, packed)


@pytest.mark.parametrize(
    ("lanes", "moved"),
    [([OLD], [NEW]), ([OLD, "7/user:9"], [NEW, "7/user:9"]), (["7/user:9"], ["7/user:9"]), ([""], [])],
)
def test_a_timer_has_the_lanes_of_the_new_chat(lanes: list[str], moved: list[str]) -> None:
    content = {"name": "tea", "data": {"chat": -5}, "chat": {"id": -5, "type": "group"}, "sender_chat": {"id": -5}}
    record, write = _moves(MIGRATION, "7", [stored(content, lanes)], TimerPlan(queues=4))
    assert record == Set(RECORD, b"-1005")
    assert isinstance(write, MoveTimer)
    assert (write.owner, write.name, write.id, write.to, write.lanes) == (OLD, "tea", "7:timer:90:1", NEW, moved)
    assert (write.queue == "updates.old") == (OLD not in lanes)
    # And only what names its chat is changed, not its data
    found = content_of(stored(content, [])._replace(stored=bytes(write.stored)))  # type: ignore[arg-type]
    place = {"chat": {"id": -1005, "type": "supergroup"}, "sender_chat": {"id": -1005}}
    assert found == {"timer": {**content, **place}}


class Run:
    """A run of a timer, as a Delivery."""

    id = "7:timer:90500:3"

    def __init__(self, *, new: bytes | None = b"-1005", has_made_calls: bool = False) -> None:
        self.new = new
        self.calls = has_made_calls

    def read(self, names: list[str]) -> Read:
        assert names == [RECORD]
        return Read([OLD], [self.new])

    def has_made_calls(self) -> bool:
        return self.calls


def again(run: Any, chat: Any = -5) -> Any:
    return set_again({"timer": {"name": "tea", "chat": {"id": chat}}}, run, TimerPlan())


def test_a_timer_that_has_fired_is_set_again_for_the_new_chat_at_the_same_time() -> None:
    write = again(Run())
    assert (write.owner, write.name, write.id, write.at_ms) == (NEW, Run.id, "7:timer:", 90_500)
    assert (write.lanes, write.queue) == ([NEW], "updates.0")


def test_a_timer_runs_where_it_is_if_its_chat_is_the_same_or_it_has_made_calls() -> None:
    assert again(Run(new=None)) is None
    assert again(Run(has_made_calls=True)) is None
    for chat in (5, -1_000_000_000_001, None, "x"):
        assert again(None, chat) is None
    assert set_again({"update_id": 1, "message": {"chat": {"id": -5}}}, Run(), TimerPlan()) is None  # type: ignore[arg-type]
