"""The page reads the state of the lanes from Redis."""

from __future__ import annotations

from dataclasses import replace

from redis import Redis

from celery_lanes.monitoring import inspection
from chatlanes.settings import Settings
from chatlanes.updates.intake import Intake
from chatlanes_sandbox.page.lanes import LaneWatch


def test_groups_are_read_while_they_grow(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, bot_token="1:SIMULATED", collect="messages")
    watch = LaneWatch(settings, lambda: None, lambda snapshot: None)
    redis, intake = Redis.from_url(redis_url), Intake.connect(settings)

    def say(number: int, chat: int) -> None:
        person = {"id": chat, "is_bot": False, "first_name": "Ann"}
        where = {"id": chat, "type": "private"}
        message = {"message_id": number, "date": 0, "chat": where, "from": person, "text": "a"}
        intake.append([{"update_id": number, "message": message}])

    # Given two messages of one chat that are one run, and one of another
    for number, chat in ((5, 7), (6, 7), (9, 8)):
        say(number, chat)
    assert watch.snapshot(redis, frozenset()).groups == [[5, 6]]
    # When another joins, then it is in the group too
    say(10, 7)
    assert watch.snapshot(redis, frozenset()).groups == [[5, 6, 10]]
    # And a run of another bot, or one that has ended since its record was read, is none
    [record] = inspection.records(redis, ["1:5"])
    assert watch._group(redis, replace(record, id="2:5")) == []
    redis.flushall()
    assert watch._group(redis, replace(record, size=4)) == []
