"""The two sides of a comparison: how each gets a backlog, how much of it is left, and which worker processes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

import orjson
from redis import Redis

from bench.load.updates import Update
from bench.measure.scale import QUEUES
from celery_lanes.protocol import NewMessage, Store
from celery_lanes.protocol.envelope import pack_task
from chatlanes.updates import keys_of, queue_of

#: The size of Telegram's batches.
BATCH = 100


class BacklogSide(Protocol):
    """`app` is what `celery -A` takes."""

    name: str
    app: str

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None: ...

    def left(self, client: Redis) -> int: ...


class Stock:
    """One queue, Celery's default: with fewer queues BRPOP has fewer keys to check."""

    name = "stock"
    app = "bench.apps.stock_app"

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        from bench.apps.stock_app import app, noop

        with app.connection_for_write(url) as connection, app.amqp.Producer(connection) as one, one.batch(BATCH):
            for update in updates:
                noop.apply_async((update,), producer=one)

    def left(self, client: Redis) -> int:
        """Tasks that wait, plus tasks that are reserved and not acknowledged."""
        with client.pipeline(transaction=False) as pipe:
            pipe.llen("celery")
            pipe.hlen("unacked")
            waiting, unacked = pipe.execute()
        return int(waiting) + int(unacked)


class Recipe(Stock):
    """Stock Celery with each chat hashed to one of the queues that lanes use."""

    name = "hash-routed queues"
    app = "bench.apps.recipe_app"

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        from bench.apps.recipe_app import app, noop

        with app.connection_for_write(url) as connection, app.amqp.Producer(connection) as one, one.batch(BATCH):
            for update in updates:
                noop.apply_async((update,), producer=one, queue=chat_queue(update))

    def left(self, client: Redis) -> int:
        with client.pipeline(transaction=False) as pipe:
            for number in range(QUEUES):
                pipe.llen(f"updates.{number}")
            pipe.hlen("unacked")
            return sum(map(int, pipe.execute()))


class LanesSide:
    """Appends as chatlanes.updates.intake does, with the no-op task."""

    app = "bench.apps.lanes_app"
    name = "lanes"

    def __init__(self, name: str = name) -> None:
        self.name = name

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        store, rest = Store(client), iter(updates)
        while batch := [lane_message(update) for update in islice(rest, BATCH)]:
            store.append(batch)

    def left(self, client: Redis) -> int:
        return Store(client).pending("updates")


def chat_queue(update: Update) -> str:
    return queue_of(keys_of(update), update["update_id"], QUEUES)


def lane_message(
    update: Update, task: str = "bench.noop", *, queues: int = QUEUES, more_lanes: Sequence[str] = ()
) -> NewMessage:
    """`more_lanes` are keys in addition to its chat."""
    number, keys = update["update_id"], keys_of(update)
    body = b'[[%s],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]' % orjson.dumps(update)
    return NewMessage(
        id=f"1:{number}",
        queue=queue_of(keys, number, queues),
        stored=pack_task(task, f"(update {number})", body),
        lanes=[*keys, *more_lanes],
        once=("1", number),
    )


def worker(app: str, url: str, *options: Any) -> list[str]:
    """Arguments of `python -m`. Log level and events are Celery's defaults: WARNING, no events.

    --without-mingle skips the search for other workers, which delays the first task by a second.
    """
    return ["celery", "-A", app, "-b", url, "worker", "-l", "WARNING", "--without-mingle", *map(str, options)]
