"""Flower's broker page shows the backlog, which no queue's length does."""

from __future__ import annotations

from redis import Redis

from celery_lanes.protocol import NewMessage, Store
from chatlanes.tasks.flower import rows

LEASE_MS = 600_000


def test_what_waits_behind_others_is_counted(redis_url: str) -> None:
    redis = Redis.from_url(redis_url)
    # Given four updates of one chat, one of another, and one of them with a worker
    store = Store(redis)
    for number in range(4):
        store.append([NewMessage(f"1:{number}", "updates.0", b"{}", ["1/chat:7"])])
    store.append([NewMessage("1:9", "updates.1", b"{}", ["1/chat:9"])])
    store.turn(["updates.0"], holder="here:1:x", room=1, lease_ms=LEASE_MS)
    lengths = [{"name": name, "messages": redis.llen(name)} for name in ("updates.0", "updates.1", "celery")]
    # Then the rows name all of it
    shown = {str(row["name"]): row for row in rows(redis, ["updates"], lengths)}
    [everything] = [row for name, row in shown.items() if name.startswith("updates.*, all lanes")]
    assert (everything["messages"], everything["messages_ready"]) == (5, 1)
    assert "chatlanes lanes status" in everything["name"]
    assert shown["handed out to workers"]["messages_unacknowledged"] == 1
    assert (shown["waiting for a retry"]["messages"], shown["buried"]["messages"]) == (0, 0)
    # And the queues are in the row of their group, which opens
    assert everything["queues"] == [
        {"name": "updates.0", "messages_ready": 0},
        {"name": "updates.1", "messages_ready": 1},
    ]
    assert not {"updates.0", "updates.1"} & set(shown)
    # And another queue is as Flower has it
    assert shown["celery"] == {"name": "celery", "messages": 0}
