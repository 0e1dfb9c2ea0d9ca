"""The usual recipe for order with stock Celery: each chat hashed to one of a few queues, one `-c 1` worker per queue.

Late acknowledgement, lost children rejected, a visibility timeout of 10 s: the best configuration that stock Celery
offers. A chaos run compares it with lanes, on the same updates and under the same kinds of faults. `python -m
chaos.systems.recipe` is its poller, which confirms a batch after publishing it, as ours does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import requests
from celery import Celery
from kombu import Queue

from chaos.systems.bot import handle
from chatlanes.telegram.client import BotApi
from chatlanes.updates import chat_of, keys_of, queue_of

QUEUES = 4
VISIBILITY_TIMEOUT_S = 10.0

app = Celery("recipe")
app.conf.update(
    broker_url=os.environ.get("REDIS_URL"),
    broker_transport_options={"visibility_timeout": VISIBILITY_TIMEOUT_S},
    broker_connection_retry_on_startup=True,
    task_queues=[Queue(f"updates.{n}") for n in range(QUEUES)],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)


@dataclass(frozen=True)
class RecipeContext:
    """The context of the bot, with direct calls to Telegram."""

    update: dict[str, Any]
    attempt: int
    session: dict[str, Any] = field(default_factory=dict)  # not stored

    @property
    def update_id(self) -> int:
        return int(self.update["update_id"])

    @property
    def chat_id(self) -> int | None:
        return chat_of(self.update)

    def call(self, method: str, /, **params: Any) -> Any:
        return _api().call(method, **params)


@cache
def _api() -> BotApi:
    return BotApi(os.environ["BOT_API_URL"], os.environ["BOT_TOKEN"])


@app.task(name="recipe.update", bind=True, max_retries=4)
def update(self: Any, content: dict[str, Any]) -> None:
    try:
        handle(RecipeContext(content, self.request.retries + 1))
    except Exception as error:
        raise self.retry(exc=error, countdown=0.2) from error


def main() -> None:
    api = f"{os.environ['BOT_API_URL']}/bot{os.environ['BOT_TOKEN']}"
    offset = 0
    with requests.Session() as session:
        while True:
            answer = session.post(f"{api}/getUpdates", json={"offset": offset, "limit": 100, "timeout": 50}, timeout=60)
            for content in answer.json()["result"]:
                queue = queue_of(keys_of(content), content["update_id"], QUEUES)
                update.apply_async((content,), queue=queue)
                offset = content["update_id"] + 1


if __name__ == "__main__":
    main()
