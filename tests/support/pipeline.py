"""The whole path on one machine: a Bot API, a Redis, and the project's own commands as processes.

Promises that what is pushed to the Bot API is known with its lanes, so that the history can be held against it.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redis import Redis

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.connect import connect
from chatlanes.lanes.protocol.store import Store
from chatlanes.sandbox.simulator import Simulator
from tests.support import bots, history
from tests.support.process import Process
from tests.support.waiting import until

BOT_ID = 123456
SECRET = "SECRET-part_of-the_TOKEN"
TOKEN = f"{BOT_ID}:{SECRET}"
CELERY = (sys.executable, "-m", "celery", "-A", "chatlanes")
READY = " ready."


def message(number: int, chat: int, user: int | None = None, do: str = "") -> dict[str, Any]:
    """An update without an id. The bot answers `#<number>` and does what `do` says (bots.py)."""
    place = {"id": chat, "type": "private" if user is None else "supergroup"}
    text = f"{do} #{number}" if number else do
    who = {"id": chat if user is None else user, "is_bot": False, "first_name": "Ann"}
    return {"message": {"message_id": number, "date": 0, "chat": place, "from": who, "text": text}}


def conversations(chats: int, each: int) -> list[dict[str, Any]]:
    """So many chats, each with its messages 1, 2, …; all talk at the same time, each up to five messages in a row."""
    chance, said, updates = random.Random(7), dict.fromkeys(range(1, chats + 1), 0), []
    while said:
        chat = chance.choice(list(said))
        for _ in range(min(chance.randint(1, 5), each - said[chat])):
            said[chat] += 1
            updates.append(message(said[chat], chat))
        if said[chat] == each:
            del said[chat]
    return updates


class Pipeline:
    """`settings` are those of all its processes, by their names in the environment."""

    secret = SECRET

    def __init__(self, directory: Path, simulator: Simulator, redis_url: str, **settings: object) -> None:
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
        self.lanes: dict[int, tuple[str, ...]] = {}  # of every update pushed
        self._processes: list[Process] = []
        self._names = (str(n) for n in itertools.count(1))

    # -- its processes

    def poller(self, *arguments: str, **settings: object) -> Process:
        return self._start("poller", [sys.executable, "-m", "chatlanes.poller", *arguments], settings)

    def worker(
        self, pool: str = "threads", slots: int = 4, *arguments: str, is_awaited: bool = True, **settings: object
    ) -> Process:
        """A worker; `settings` on top of the others. Returns when it consumes."""
        command = [*CELERY, "worker", "--loglevel", "INFO", "--pool", pool, "--concurrency", str(slots)]
        command.append("--without-mingle")  # saves each worker a second
        worker = self._start("worker", [*command, "--hostname", f"w{len(self._processes)}@test", *arguments], settings)
        if is_awaited:
            worker.tells(READY)
        return worker

    def receiver(self, port: int, *arguments: str, is_awaited: bool = True, **settings: object) -> Process:
        """Listens at /hook when this returns."""
        ours = {"WEBHOOK_URL": "https://bot.example.org/hook", "WEBHOOK_PORT": port, **settings}
        receiver = self._start("receiver", [sys.executable, "-m", "chatlanes.poller", "webhook", *arguments], ours)
        if is_awaited:
            receiver.tells("receiving on")
        return receiver

    def flower(self, port: int, **settings: object) -> Process:
        """Without a password, unless `settings` say otherwise."""
        settings = settings or {"FLOWER_UNAUTHENTICATED_API": "true"}
        return self._start("flower", [*CELERY, "flower", "--address=127.0.0.1", f"--port={port}"], settings)

    def command(self, *arguments: str, **settings: object) -> Process:
        """`celery -A chatlanes …`"""
        return self._start(arguments[0], [*CELERY, *arguments], settings)

    def _start(self, what: str, command: Sequence[str], settings: Mapping[str, object]) -> Process:
        name = f"{what}{next(self._names)}"
        ours = {
            bots.HISTORY: str(self._history_file),
            bots.GATES: str(self.directory),
            bots.WORKER: name,
        }
        process = Process(name, command, self.directory, {**self.settings, **ours, **settings}, [SECRET])
        self._processes.append(process)
        return process

    # -- updates, and what became of them

    def push(self, *updates: dict[str, Any]) -> list[int]:
        """To the Bot API; gives their ids."""
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
        """The updates that this (start, end, raise) happened to, in order."""
        return history.ids(self.history, what)

    def started(self, *updates: int) -> None:
        """Waits until each of these has started."""
        until(lambda: set(updates) <= set(self.happened("start")))

    def ended(self, *updates: int) -> None:
        """Waits until each of these has ended."""
        until(lambda: set(updates) <= set(self.happened("end")))

    def some_ended(self, count: int) -> None:
        """Waits until so many have ended."""
        until(lambda: len(self.happened("end")) >= count)

    def drained(self) -> None:
        """Waits until Telegram has forgotten every update and Redis has heard of each that it is settled or buried."""
        until(lambda: self.simulator.stats()["confirmed"] == self.simulator.stats()["added"])
        until(lambda: self.pending() == 0)

    def check_once_each(self) -> None:
        history.check_once_each(self.history, self.lanes)

    def check_order(self, *killed: Process) -> None:
        history.check_order(self.history, self.lanes, killed={process.name for process in killed})

    # -- what Redis holds

    def count(self, name: str) -> int:
        return int(self.redis.hget(keys.COUNTS, name) or 0)

    def pending(self) -> int:
        """How many are not settled or buried."""
        return Store(self.redis).pending()

    def state_of(self, update: int) -> str | None:
        """None: it is settled."""
        state = self.redis.hget(keys.message(f"{BOT_ID}:{update}"), "state")
        return state.decode() if state else None

    def leases(self) -> list[str]:
        """The ids of what is leased."""
        return [each.decode() for each in self.redis.zrange(keys.LEASES, 0, -1)]

    def dead(self) -> list[str]:
        """The ids of what is buried."""
        return [each.decode() for each in self.redis.zrange(keys.DEAD, 0, -1)]

    def stored(self, message_id: str) -> Any:
        """The one argument of a message's task: what Telegram sent."""
        _, _, body = (self.redis.get(keys.body(message_id)) or b"").partition(b"\n")
        return json.loads(body)[0][0]

    def problems(self, message_id: str) -> list[dict[str, Any]]:
        """What was written down for each failure."""
        return [json.loads(each) for each in self.redis.lrange(keys.errors(message_id), 0, -1)]

    def session(self, chat: int) -> Any:
        """What is kept for a chat; None: nothing."""
        kept = self.redis.get(f"session:{BOT_ID}/chat:{chat}")
        return None if kept is None else json.loads(kept)

    def leftovers(self) -> list[bytes]:
        """What Redis holds of updates. After all are settled: nothing."""
        patterns = [keys.MESSAGE, keys.BODY, keys.LANE, keys.ERRORS, keys.JOURNAL]
        return [key for pattern in patterns for key in self.redis.scan_iter(f"{pattern}*", count=1000)]

    def close(self) -> None:
        self.redis.close()
        for process in reversed(self._processes):
            process.end()
