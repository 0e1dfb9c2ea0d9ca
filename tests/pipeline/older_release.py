"""Dump the state that a release leaves in Redis when its worker is killed. Made once per release, stored as JSON.

    python -m tests.pipeline.older_release 0.1.0

The dump holds a message in every state, with its journal, errors and session. It may be made again until the release.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from redis import Redis

from celery_lanes.embedded_server import start_server
from celery_lanes.protocol import keys
from chatlanes_sandbox.simulator import start
from tests.support import ROOT
from tests.support.pipeline import BOT_ID, TOKEN, Pipeline, message
from tests.support.waiting import until

FOLDER = Path(__file__).with_name("releases")
BOT = "tests.support.bots:bot"
#: chat -> the orders of its first update; the updates of `LATER` arrive after the worker's death
SETTLED, RUNNING, DELAYED, BURIED, LATER = 1, 2, 3, 4, 5
FIRST = {SETTLED: "counts:1", RUNNING: "counts:1 says:once gate:a", DELAYED: "fails:1", BURIED: "refuses:it", LATER: ""}


def leave_behind(pipeline: Pipeline) -> None:
    """Push two updates for every chat, except BURIED, which gets one, and kill the worker."""
    poller, worker = pipeline.poller(), pipeline.worker("threads", 8, RETRY_BACKOFF=60)
    ids = pipeline.push(*(message(1, chat, do=what) for chat, what in FIRST.items() if chat != LATER))
    pipeline.ended(ids[0])
    until(lambda: pipeline.state_of(ids[0]) is None)
    until(lambda: [pipeline.state_of(update) for update in ids[1:]] == ["leased", "delayed", "buried"])
    until(lambda: b"done" in (pipeline.redis.hget(keys.journal(f"{BOT_ID}:{ids[1]}"), "1") or b""))
    worker.kill_all()
    pipeline.push(message(1, LATER), *(message(2, chat) for chat in FIRST if chat not in (SETTLED, BURIED)))
    until(lambda: pipeline.count("appended") == len(FIRST) + 3)
    poller.stop()


def dump(client: Redis) -> dict[str, Any]:
    """key -> its type and its value as JSON, bytes as Latin-1. Without kombu's keys, which belong to its processes."""
    own = [key for key in sorted(client.scan_iter()) if not key.startswith(b"_kombu")]
    return {_text(key): _read(client, key) for key in own}


def _read(client: Redis, key: bytes) -> list[Any]:
    kind = client.type(key).decode()
    if kind == "string":
        return [kind, _text(client.get(key))]
    if kind == "hash":
        return [kind, {_text(name): _text(value) for name, value in client.hgetall(key).items()}]
    if kind == "zset":
        return [kind, {_text(member): score for member, score in client.zrange(key, 0, -1, withscores=True)}]
    return [kind, [_text(each) for each in (client.lrange(key, 0, -1) if kind == "list" else client.smembers(key))]]


def restore(client: Redis, state: dict[str, Any]) -> None:
    for key, (kind, value) in state.items():
        if kind == "string":
            client.set(key, value.encode("latin-1"))
        elif kind == "hash":
            client.hset(key, mapping={name: each.encode("latin-1") for name, each in value.items()})
        elif kind == "zset":
            client.zadd(key, value)
        elif kind == "list":
            client.rpush(key, *(each.encode("latin-1") for each in value))
        else:
            client.sadd(key, *(each.encode("latin-1") for each in value))


def _text(value: Any) -> str:
    return bytes(value).decode("latin-1")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with start(TOKEN) as simulator, start_server(folder / "redis") as redis:
        pipeline = Pipeline(folder, simulator, redis.url, BOT=BOT)
        leave_behind(pipeline)
        kept = json.dumps({"lanes": pipeline.lanes, "redis": dump(pipeline.redis)}, indent=1)
        pipeline.close()
    for folder_of_machine in (ROOT, sys.base_prefix):  # tracebacks contain the folders of this machine
        kept = kept.replace(str(folder_of_machine), "")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{sys.argv[1]}.json").write_text(kept + "\n")


if __name__ == "__main__":
    main()
