"""The command `lanes` on a new app, with an embedded Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner
from kombu import Queue
from redis import Redis

import celery_lanes as lanes
from celery_lanes.cli import lanes as command
from celery_lanes.protocol import Group, NewMessage, Store
from celery_lanes.protocol.envelope import pack_task
from chatlanes.updates.words import WORDS

QUEUES = ["shop.0", "shop.1", "help.0"]
LEASE_MS = 600_000
#: How the commands of chatlanes differ from those of another app.
COMMANDS = "chatlanes.cli.commands:BotCommands"


class Cli:
    """`said` runs a command and returns its lines; `code` is its exit code."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.code = 0

    @property
    def store(self) -> Store:
        store: Store = self.app.lanes.store
        return store

    @property
    def client(self) -> Redis:
        return self.store.client

    def said(self, *arguments: str, answer: str | None = None) -> list[str]:
        return self.text(*arguments, answer=answer).splitlines()

    def text(self, *arguments: str, answer: str | None = None) -> str:
        ran = CliRunner().invoke(command, arguments, obj=SimpleNamespace(app=self.app), input=answer)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        self.code = ran.exit_code
        return ran.output

    # -- building a state

    def append(self, message_id: str, *lane_keys: str, queue: str = "shop.0", update: Any = None) -> None:
        title = f"(message, chat {lane_keys[0].rpartition(':')[2] if lane_keys else None}, update {message_id})"
        body = b'[[%s],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
        stored = pack_task("tasks.update", title, body % json.dumps(update or {"update_id": 1}).encode())
        self.store.append([NewMessage(message_id, queue, stored, lane_keys)])

    def collect(self, lane: str, *numbers: int) -> None:
        """Append updates that are one run."""
        body = b'[[{"update_id": %d}],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
        chat = lane.rpartition(":")[2]
        group = Group("all", 60_000, 60_000, len(numbers))
        for number in numbers:
            stored = pack_task("tasks.update", f"(message, chat {chat}, update {number})", body % number)
            self.store.append([NewMessage(f"1:{number}", "shop.0", stored, [lane], group=group)])

    def take(self, room: int = 1, queue: str = "shop.0", holder: str = "east:4711:abcdef") -> list[tuple[str, str]]:
        """Lease messages; returns (id, fence) of each."""
        turned = self.store.turn([queue], holder=holder, lease_ms=LEASE_MS, room=room)
        return [(message.id, message.fence) for message in turned.leased]

    def bury(self, message_id: str, *lane_keys: str, problem: str = "ValueError", **more: Any) -> None:
        self.append(message_id, *lane_keys, **more)
        [(taken, fence)] = self.take(queue=more.get("queue", "shop.0"))
        assert taken == message_id
        problem_fields = {
            "type": problem,
            "message": f"{message_id} went wrong",
            "attempt": 5,
            "traceback": "Traceback\n  here\n",
        }
        self.store.bury(message_id, fence, problem_fields)


@pytest.fixture
def cli(redis_url: str) -> Iterator[Cli]:
    with Celery("shop", broker=redis_url, set_as_current=False) as app:
        lanes.install(app, words=WORDS, commands=COMMANDS)
        app.conf.task_queues = [
            *(Queue(name, queue_arguments=lanes.QUEUE_ARGUMENTS) for name in QUEUES),
            Queue("celery"),
        ]
        made = Cli(app)
        yield made
        made.client.close()
