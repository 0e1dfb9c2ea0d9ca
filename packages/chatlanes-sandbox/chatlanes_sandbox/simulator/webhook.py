"""Sends waiting updates to a webhook, as the public server does.

Order holds inside a queue only, with at most `max_connections` requests at a time, one for each queue. An update is
forgotten when it was answered with 2xx; otherwise it is sent again at once, then after 2, 4, 8 … 60 s, or as
Retry-After says, without end. No redirects and no certificate checks: it sends to programs of this machine.
"""

import asyncio
import random
import ssl
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from chatlanes_sandbox.simulator.updates import PendingUpdates

# ── the queue of the public server that an update passes ──

#: Messages, edits and posts of a chat share one queue.
MESSAGES = frozenset({"message", "edited_message", "channel_post", "edited_channel_post"})
#: These share one queue of their user.
OF_USER = frozenset({"business_connection", "inline_query", "chosen_inline_result", "chat_member", "chat_join_request"})
#: Each of these has a queue of its own for each user.
OWN_OF_USER = frozenset(
    {"callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "managed_bot", "subscription"}
)

Queue = tuple[str, Any]


def queue_of(update: Any) -> Queue:
    """The name of the queue. Any JSON value has one, even if it is not an update."""
    fields = update if isinstance(update, dict) else {}
    kind = next((field for field in fields if field != "update_id"), "")
    event = fields.get(kind)
    event = event if isinstance(event, dict) else {}
    if kind in MESSAGES:
        return "messages", _id(event, "chat")
    if kind in OF_USER:
        return "user", _id(event, "from", "user")
    if kind in OWN_OF_USER:
        return kind, _id(event, "from", "user")
    if kind in ("poll", "poll_answer"):
        return "poll", event.get("id") if kind == "poll" else event.get("poll_id")
    return kind, _id(event, "chat", "from", "user")


def _id(event: dict[str, Any], *names: str) -> Any:
    """The id of the first of these fields that is present."""
    return next((event[name].get("id") for name in names if isinstance(event.get(name), dict)), None)


# ── HTTP/1.1 POST to one address over keep-alive connections ──

#: How long the public server waits for a webhook.
ANSWER_WITHIN_S = 60.0
LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class PostResponse:
    """`retry_after_s` is 0 if the answer has none."""

    status: int
    reason: str
    retry_after_s: float = 0.0


class BrokenResponseError(ConnectionError):
    """A malformed or incomplete HTTP response."""


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Address:
    """One connection for each concurrent request, reused if the server allows it.

    Raises OSError if it cannot be reached or closes the connection, TimeoutError if it does not answer.
    """

    url: str
    headers: dict[str, str]
    _idle: list[Connection] = field(default_factory=list, init=False)

    @property
    def is_here(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    async def post(self, body: bytes) -> PostResponse:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            if self._idle:
                try:
                    return await self._exchange(self._idle.pop(), body)
                except (ConnectionError, EOFError):
                    pass  # closed while it was idle, most likely
            return await self._exchange(await self._connect(), body)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _connect(self) -> Connection:
        place = urlsplit(self.url)
        secure = place.scheme == "https"
        context = ssl._create_unverified_context() if secure else None  # noqa: S323 - on this machine
        return await asyncio.open_connection(place.hostname, place.port or (443 if secure else 80), ssl=context)

    async def _exchange(self, connection: Connection, body: bytes) -> PostResponse:
        reader, writer = connection
        try:
            writer.write(self._head(len(body)) + body)
            answer, is_kept = await _read_answer(reader)
        except BaseException:
            writer.close()
            raise
        if is_kept:
            self._idle.append(connection)
        else:
            writer.close()
        return answer

    def _head(self, length: int) -> bytes:
        place = urlsplit(self.url)
        target = place.path or "/"
        lines = [f"POST {target} HTTP/1.1", f"Host: {place.netloc}", "Content-Type: application/json"]
        lines += [f"Content-Length: {length}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[PostResponse, bool]:
    """The answer, and True if its connection can be used again."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BrokenResponseError("the connection was closed without an answer") from error
    status_line, *lines = head.split("\r\n")
    version, _, rest = status_line.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise BrokenResponseError("malformed HTTP response")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    is_kept = length.isdigit() and headers.get("connection", "").lower() != "close"
    if length.isdigit():
        await reader.readexactly(min(int(length), LONGEST_ANSWER))
    wish = headers.get("retry-after", "")
    return PostResponse(int(code), reason, float(wish) if wish.isdigit() else 0.0), is_kept


# ── the webhook ──

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
