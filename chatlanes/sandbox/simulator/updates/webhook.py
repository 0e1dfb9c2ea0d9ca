"""Sends waiting updates to a webhook, as the public server does.

Order holds inside a queue only, with at most `max_connections` requests at a time, one for each queue. An update is
forgotten when it was answered with 2xx; otherwise it is sent again at once, then after 2, 4, 8 … 60 s, or as
Retry-After says, without end.
"""

import asyncio
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from chatlanes.sandbox.simulator.updates.http_post import Address, PostResponse
from chatlanes.sandbox.simulator.updates.pending import PendingUpdates
from chatlanes.sandbox.simulator.updates.webhook_queues import Queue, queue_of

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - its name
MOST_CONNECTIONS, USUAL_CONNECTIONS = 100, 40
LONGEST_PAUSE_S, LONGEST_WISH_S = 60.0, 3600.0


@dataclass(frozen=True)
class Disorder:
    """How unreliable the connection to the webhook is.

    jitter_s  each request is delayed by up to this time, which changes the order between queues
    repeat    this share of the updates is sent again after an answer, as when the answer is lost
    seed      of the random delays and repetitions
    """

    jitter_s: float = 0.0
    repeat: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.jitter_s < 0 or not 0 <= self.repeat <= 1:
            raise ValueError("jitter_s must be at least 0, repeat from 0 to 1")


@dataclass
class Webhook:
    """One webhook, from setWebhook to the next. Sends the waiting updates, and those passed to `take`."""

    address: Address
    max_connections: int
    updates: PendingUpdates
    disorder: Disorder = Disorder()
    #: status -> count; 0: no answer.
    answered: Counter[int] = field(default_factory=Counter)
    last_error: tuple[int, str] | None = None

    _waiting: dict[Queue, deque[tuple[int, bytes]]] = field(default_factory=dict, init=False)
    #: The queues that are being sent; all others wait in `_line`.
    _loaded: dict[Queue, "asyncio.Task[None]"] = field(default_factory=dict, init=False)
    _line: deque[Queue] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        self._connections = asyncio.Semaphore(self.max_connections)
        self._chance = random.Random(self.disorder.seed)  # noqa: S311 - a demonstration, not a secret
        for update_id, body in self.updates.waiting():
            self.take(update_id, body)

    def take(self, update_id: int, body: bytes) -> None:
        """A new update."""
        queue = queue_of(orjson.loads(body))
        if queue not in self._waiting:
            self._waiting[queue] = deque()
            self._line.append(queue)
        self._waiting[queue].append((update_id, body))
        self._load()

    def disturb(self, disorder: Disorder) -> None:
        self.disorder = disorder
        self._chance = random.Random(disorder.seed)  # noqa: S311

    def tally(self) -> dict[str, int]:
        return {str(status): count for status, count in self.answered.items()}

    def end(self) -> None:
        for task in self._loaded.values():
            task.cancel()
        self.address.close()

    def _load(self) -> None:
        """The public server serves this many queues at a time: refused ones delay the rest."""
        while self._line and len(self._loaded) < 2 * self.max_connections:
            queue = self._line.popleft()
            self._loaded[queue] = asyncio.get_running_loop().create_task(self._send_all(queue))

    async def _send_all(self, queue: Queue) -> None:
        waiting = self._waiting[queue]
        while waiting:
            update_id, body = waiting[0]
            await self._until_taken(body)
            if self._chance.random() < self.disorder.repeat:
                await self._send(body)
            waiting.popleft()
            self.updates.delivered(update_id)
        del self._waiting[queue], self._loaded[queue]
        self._load()

    async def _until_taken(self, body: bytes) -> None:
        pause_s, failures = 1.0, 0
        while True:
            answer = await self._send(body)
            if 200 <= answer.status < 300:
                return
            if failures:
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            wait_s = min(answer.retry_after_s, LONGEST_WISH_S) or (pause_s if failures else 0.0)
            failures += 1
            self.last_error = int(time.time()), answer.reason
            await asyncio.sleep(wait_s)

    async def _send(self, body: bytes) -> PostResponse:
        async with self._connections:
            if self.disorder.jitter_s:
                await asyncio.sleep(self._chance.uniform(0, self.disorder.jitter_s))
            answer = await self._posted(body)
        self.answered[answer.status] += 1
        return answer

    async def _posted(self, body: bytes) -> PostResponse:
        if not self.address.is_here:
            return PostResponse(0, "the simulator sends to this machine only")
        try:
            answer = await self.address.post(body)
        except TimeoutError:
            return PostResponse(0, "Connection timed out")
        except (OSError, EOFError) as error:
            return PostResponse(0, getattr(error, "strerror", None) or str(error) or type(error).__name__)
        if 200 <= answer.status < 300:
            return answer
        told = f"Wrong response from the webhook: {answer.status} {answer.reason}"
        return PostResponse(answer.status, told, answer.retry_after_s)


def webhook_from(params: dict[str, Any], connections: int, updates: PendingUpdates, disorder: Disorder) -> Webhook:
    """A webhook from the parameters of setWebhook."""
    secret = params.get("secret_token")
    headers = {SECRET_HEADER: str(secret)} if secret else {}
    most = min(max(connections, 1), MOST_CONNECTIONS)
    return Webhook(Address(str(params["url"]), headers), most, updates, disorder)
