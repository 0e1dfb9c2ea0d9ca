"""The whole pipeline on one machine: a simulated Bot API, Redis, and the project's commands as processes.

`lanes` records the lanes of every pushed update, so that the history can be checked against them.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from redis import Redis

from celery_lanes.protocol import Store, connect, keys, use_texts
from chatlanes.updates.routing import keys_of, queue_of
from chatlanes.updates.timer_texts import TIMER_TEXTS
from chatlanes_sandbox.simulator import Simulator
from tests.support import bots, history
from tests.support.outside import imported_with, outside
from tests.support.process import Process
from tests.support.waiting import until

BOT_ID = 123456
SECRET = "SECRET-part_of-the_TOKEN"
TOKEN = f"{BOT_ID}:{SECRET}"
CELERY = (sys.executable, "-m", "celery", "-A", "chatlanes")
READY = " ready."


def message(number: int, chat: int, user: int | None = None, do: str = "") -> dict[str, Any]:
    """An update without an id. The bot executes the orders in `do` (bots.py) and answers `#<number>`."""
    where = {"id": chat, "type": "private" if user is None else "supergroup"}
    text = f"{do} #{number}" if number else do
    sender = {"id": chat if user is None else user, "is_bot": False, "first_name": "Ann"}
    return {"message": {"message_id": number, "date": 0, "chat": where, "from": sender, "text": text}}


def conversations(chats: int, each: int) -> list[dict[str, Any]]:
    """`each` messages, numbered from 1, in every one of `chats`, interleaved in runs of one to five messages."""
    rng, sent, updates = random.Random(7), dict.fromkeys(range(1, chats + 1), 0), []
    while sent:
        chat = rng.choice(list(sent))
        for _ in range(min(rng.randint(1, 5), each - sent[chat])):
            sent[chat] += 1
            updates.append(message(sent[chat], chat))
        if sent[chat] == each:
            del sent[chat]
    return updates


def chats_of(queue: int, queues: int) -> Iterator[int]:
    """The chats whose updates are in this one of `queues` queues."""
    return (n for n in itertools.count(1) if queue_of(keys_of(message(0, n)), 0, queues) == f"updates.{queue}")


def one_chat_each(workers: Sequence[object]) -> list[int]:
    """A chat in the queue of each worker (Pipeline.start_workers)."""
    return [next(chats_of(place, len(workers))) for place in range(len(workers))]


class Pipeline:
    """`settings` are the settings of all processes, by their environment variables."""

    secret = SECRET

    def __init__(self, directory: Path, simulator: Simulator, redis_url: str, **settings: object) -> None:
        use_texts(TIMER_TEXTS)
        self.directory = directory
        self.simulator = simulator
        self.redis: Redis = connect(redis_url, master=str(settings.get("SENTINEL_MASTER", "")) or None)
        self.settings: dict[str, object] = {
            "BOT_TOKEN": TOKEN,
            "BOT_API_URL": simulator.url,
            "REDIS_URL": redis_url,
            "BOT": "tests.support.bots:handle",
            **settings,
        }
        self.lanes: dict[int, tuple[str, ...]] = {}  # of every pushed update
        self._processes: list[Process] = []
        self._names = (str(n) for n in itertools.count(1))

    # -- processes

    def poller(self, *arguments: str, **settings: object) -> Process:
        return self._start("poller", [sys.executable, "-m", "chatlanes.poller", *arguments], settings)

    def worker(
        self, pool: str = "threads", slots: int = 4, *arguments: str, is_awaited: bool = True, **settings: object
    ) -> Process:
        """Start a worker and wait until it consumes. `settings` override those of the pipeline."""
        command = [*CELERY, "worker", "--loglevel", "INFO", "--pool", pool, "--concurrency", str(slots)]
        command.append("--without-mingle")  # saves each worker a second
        worker = self._start("worker", [*command, "--hostname", f"w{len(self._processes)}@test", *arguments], settings)
        if is_awaited:
            worker.tells(READY)
        return worker

    def start_workers(self, cells: Sequence[tuple[str, str, int]]) -> list[Process]:
        """Start a worker for each (bot, pool, slots), and wait until all consume. Each has a queue of its own, by its
        place; QUEUES must be the number of cells.
        """
        started = [
            self.worker(pool, slots, "-Q", f"updates.{place}", is_awaited=False, BOT=bot)
            for place, (bot, pool, slots) in enumerate(cells)
        ]
        for worker in started:
            worker.tells(READY)
        return started

    def receiver(self, port: int, *arguments: str, is_awaited: bool = True, **settings: object) -> Process:
        """Start a webhook receiver and wait until it listens, at /hook."""
        defaults = {"WEBHOOK_URL": "https://bot.example.org/hook", "WEBHOOK_PORT": port, **settings}
        receiver = self._start("receiver", [sys.executable, "-m", "chatlanes.poller", "webhook", *arguments], defaults)
        if is_awaited:
            receiver.tells("receiving on")
        return receiver

    def flower(self, port: int, **settings: object) -> Process:
        """Start Flower, by default without a password."""
        settings = settings or {"FLOWER_UNAUTHENTICATED_API": "true"}
        return self._start("flower", [*CELERY, "flower", "--address=127.0.0.1", f"--port={port}"], settings)

    def command(self, *arguments: str, **settings: object) -> Process:
        """`celery -A chatlanes …`"""
        return self._start(arguments[0], [*CELERY, *arguments], settings)

    def _start(self, kind: str, command: Sequence[str], settings: Mapping[str, object]) -> Process:
        name = f"{kind}{next(self._names)}"
        defaults = {
            bots.HISTORY: str(self._history_file),
            bots.GATES: str(self.directory),
            bots.WORKER: name,
        }
        own = {**self.settings, **defaults, **settings}
        imported = imported_with(str(own.get("BOT", "")))
        process = Process(name, command, self.directory, own, [SECRET], inherited=outside(), imported=imported)
        self._processes.append(process)
        return process

    @property
    def workers(self) -> list[Process]:
        """In the order of their start."""
        return [process for process in self._processes if process.name.startswith("worker")]

    # -- updates and their history

    def push(self, *updates: dict[str, Any]) -> list[int]:
        """Send updates to the bot, through the simulated Bot API; returns their ids."""
        ids = [update_id for update_id in self.simulator.push(*updates) if update_id is not None]
        for update_id, update in zip(ids, updates, strict=True):
            self.lanes[update_id] = self._lanes_of(update.get("message") or update["callback_query"]["message"])
        return ids

    def _lanes_of(self, message: dict[str, Any]) -> tuple[str, ...]:
        chat, user = f"chat {message['chat']['id']}", f"user {message['from']['id']}"
        return (chat, user) if self.settings.get("ORDER_BY") == "chat+user" else (chat,)

    def open(self, gate: str) -> None:
        (self.directory / gate).touch()

    @property
    def _history_file(self) -> Path:
        return self.directory / "history"

    @property
    def history(self) -> list[history.Event]:
        return history.read(self._history_file, int)

    def happened(self, what: str) -> list[int]:
        """The ids of the updates with this event (start, end or raise), in order."""
        return history.ids(self.history, what)

    def started(self, *updates: int) -> None:
        """Wait until each of these has started."""
        until(lambda: set(updates) <= set(self.happened("start")))

    def ended(self, *updates: int) -> None:
        """Wait until each of these has ended."""
        until(lambda: set(updates) <= set(self.happened("end")))

    def some_ended(self, count: int) -> None:
        """Wait until at least `count` updates have ended."""
        until(lambda: len(self.happened("end")) >= count)

    def drained(self) -> None:
        """Wait until every update is confirmed to Telegram, and settled or buried in Redis."""
        until(lambda: self.simulator.stats()["confirmed"] == self.simulator.stats()["added"])
        until(lambda: self.pending() == 0)

    def check_once_each(self) -> None:
        history.check_once_each(self.history, self.lanes)

    def check_order(self, *killed: Process) -> None:
        history.check_order(self.history, self.lanes, killed={process.name for process in killed})

    # -- the state in Redis

    def count(self, name: str) -> int:
        return int(self.redis.hget(keys.COUNTS, name) or 0)

    def pending(self) -> int:
        """The number of updates that are neither settled nor buried."""
        return Store(self.redis).pending()

    def state_of(self, update: int) -> str | None:
        """The state of an update; None if it is settled."""
        state = self.redis.hget(keys.message(f"{BOT_ID}:{update}"), "state")
        return state.decode() if state else None

    def leases(self) -> list[str]:
        """The ids of the leased messages."""
        return [each.decode() for each in self.redis.zrange(keys.LEASES, 0, -1)]

    def dead(self) -> list[str]:
        """The ids of the buried messages."""
        return [each.decode() for each in self.redis.zrange(keys.DEAD, 0, -1)]

    def stored(self, message_id: str) -> Any:
        """The update as Telegram sent it: the only argument of the message's task."""
        _, _, body = (self.redis.get(keys.body(message_id)) or b"").partition(b"\n")
        return json.loads(body)[0][0]

    def problems(self, message_id: str) -> list[dict[str, Any]]:
        """The recorded error of each failure."""
        return [json.loads(each) for each in self.redis.lrange(keys.errors(message_id), 0, -1)]

    def session(self, chat: int) -> Any:
        """The stored session of a chat, or None."""
        stored = self.redis.get(f"session:{BOT_ID}/chat:{chat}")
        return None if stored is None else json.loads(stored)

    def leftovers(self) -> list[bytes]:
        """The Redis keys that belong to updates. Empty when all updates are settled."""
        patterns = [keys.MESSAGE, keys.BODY, keys.LANE, keys.ERRORS, keys.JOURNAL]
        return [key for pattern in patterns for key in self.redis.scan_iter(f"{pattern}*", count=1000)]

    def close(self) -> None:
        self.redis.close()
        for process in reversed(self._processes):
            process.end()
