"""The Bot API calls of the poller, their errors, and the offset of getUpdates.

Any status with any body is a result or one of these errors. Guarantees that none of them, nor one that it is chained
to, contains the bot token, which is part of every URL; and that the same problem has the same text each time, so that a
change can be recognized. The offset never moves past an update that was not in the batch, and no id is read from
malformed data. Does not retry, wait or log: the type of an error lets the caller decide.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from chatlanes.logs.foreign_text import one_line
from chatlanes.logs.redaction import without_token
from chatlanes.telegram.http_client import (
    BotApiAnswer,
    HttpClient,
    HttpResponse,
    NoResponseError,
    parse_answer,
    status_line,
)

#: The limit of the server for one answer.
BATCH = 100
CONNECT_WITHIN_S = 10.0
#: In addition to the long poll: the server may extend a short one to 3 s, and an answer has up to 4 MiB.
ANSWER_WITHIN_S = 10.0
#: The last confirm at shutdown takes effect when it arrives, so the wait for its answer is short.
CONFIRM_WITHIN_S = 1.0

#: The Bot API stores update ids in an int32. A larger id is invalid, and an offset made of it would make a lenient
#: server forget all later updates.
LARGEST_UPDATE_ID = 2**31 - 2

#: After a week without updates Telegram continues at a random id, which may be lower than the offset. A server that
#: obeys the old offset would then forget new updates unseen. The day of margin covers clocks and expiry.
FORGET_OFFSET_AFTER_S = 6 * 24 * 3600.0


class TokenRefusedError(Exception):
    """Telegram does not know this bot. Not retried: only another BOT_TOKEN helps."""


class TelegramTroubleError(Exception):
    """No usable answer: network error, 5xx, malformed response. Retried."""

    retry_after_s: float | None = None


class PollConflictError(TelegramTroubleError):
    """409: another poller or a webhook gets this bot's updates."""


class FloodedError(TelegramTroubleError):
    """429: too many requests, or a server that restarts. `retry_after_s` as the server asks; None if it does not."""

    def __init__(self, text: str, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def client_of(url: str, answer_within_s: float = ANSWER_WITHIN_S) -> HttpClient:
    return HttpClient(url.rstrip("/"), connect_timeout_s=CONNECT_WITHIN_S, read_timeout_s=answer_within_s)


class Telegram:
    """One bot at one Bot API server, over one kept-alive connection."""

    def __init__(
        self,
        url: str,
        token: str,
        kinds: tuple[str, ...] | None = None,
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
        http: HttpClient | None = None,
    ) -> None:
        """`http`: a client that other bots of this server share."""
        self._http = http or client_of(url, answer_within_s)
        self._token = token
        self._path = f"/bot{quote(token, safe=':')}/"
        self._answer_within_s = answer_within_s
        # Without a list the server uses the last one that any program gave it.
        self._kinds: dict[str, Any] = {} if kinds is None else {"allowed_updates": kinds}

    def username(self) -> str:
        """The username of the bot. Raises TokenRefusedError, TelegramTroubleError."""
        return str(self.object("getMe").get("username"))

    def updates(self, offset: int | None, timeout_s: int, limit: int = BATCH) -> list[Any]:
        """The next batch, of at most `limit` updates; empty if none arrived within `timeout_s`.

        Raises TokenRefusedError, TelegramTroubleError.

        The server forgets all updates below `offset` when this request arrives, before it answers.
        """
        wanted = {"limit": limit, "timeout": timeout_s, **self._kinds}
        if offset is not None:
            wanted["offset"] = offset
        try:
            updates = self.call("getUpdates", wanted, self._answer_within_s + timeout_s)
        except PollConflictError:
            holder = self._holder()
        else:
            return _list(updates)
        raise PollConflictError(holder)

    def confirm(self, offset: int) -> None:
        """Lets Telegram forget all updates below `offset`, without fetching any.

        An update in the answer is ignored, and stays at Telegram because its id is not below `offset`.
        The timeout is 0, because the server ends the long poll of another poller only for a request that waits.
        """
        wanted = {"offset": offset, "limit": 1, "timeout": 0, **self._kinds}
        self.call("getUpdates", wanted, CONFIRM_WITHIN_S)

    def close(self) -> None:
        self._http.close()

    def _holder(self) -> str:
        """After a 409: which other program gets the updates of this bot."""
        webhook = self.object("getWebhookInfo").get("url")
        if webhook:
            host = _host(webhook)
            return f"409, a webhook at {host} gets this bot's updates (`chatlanes webhook delete` ends it)"
        return "409, another poller gets this bot's updates (its token is in use twice)"

    def object(self, method: str) -> dict[str, Any]:
        """The `result` of a method that returns an object. Raises the errors of `call`."""
        result = self.call(method)
        if not isinstance(result, dict):
            raise TelegramTroubleError(f"the answer to {method} is not an object")
        return result

    def call(self, method: str, wanted: dict[str, Any] | None = None, answer_within_s: float | None = None) -> Any:
        """The `result` of any method. Raises TokenRefusedError, TelegramTroubleError."""
        try:
            status, body = self._http.ask(
                "POST",
                self._path + method,
                HttpResponse.whole,
                within_s=answer_within_s,
                data=orjson.dumps(wanted or {}),
                headers={"Content-Type": "application/json"},
            )
        except NoResponseError as error:
            trouble = TelegramTroubleError(without_token(str(error), self._token))
        else:
            return result_of(method, status, body)
        # Outside of the except block, because an error raised inside would have the other one as its context.
        raise trouble


def _list(updates: Any) -> list[Any]:
    if not isinstance(updates, list):
        raise TelegramTroubleError("the answer to getUpdates is not a list")
    return updates


def _host(url: Any) -> str:
    """Only the host, because the path of a webhook may be secret."""
    try:
        return urlsplit(url).hostname or "an unknown address"
    except (ValueError, AttributeError):  # a malformed address, or not a string
        return "an unknown address"


# -- answers


def result_of(method: str, status: int, body: bytes) -> Any:
    """The `result` of an answer to this method. Raises TokenRefusedError, TelegramTroubleError and its subclasses.

    TokenRefusedError and PollConflictError need an answer of a Bot API: the 404 of a proxy is retried.
    """
    answer = parse_answer(status, body)
    if answer is None:
        problem = f"{status_line(status)}, not an answer of a Bot API to {method} (is BOT_API_URL right?)"
        raise TelegramTroubleError(problem)
    if answer.is_ok and answer.has_result:
        return answer.result
    raise _refusal(answer)


def _refusal(answer: BotApiAnswer) -> Exception:
    code = answer.code
    description = "without a description" if answer.description is None else one_line(answer.description)
    match code:
        case 401 | 404:
            return TokenRefusedError(
                f"Telegram refused the bot token ({code} {description}): take the current one from @BotFather"
            )
        case 409:
            return PollConflictError(f"409 {description}")
        case 429:
            return FloodedError("429, too many requests", _seconds(answer.parameters.get("retry_after")))
        case _:
            return TelegramTroubleError(f"{code} {description}")


def _seconds(requested: Any) -> float | None:
    """Any number, because Retry limits it; None for NaN. An int may be too large for a float."""
    return requested if type(requested) in (int, float) and requested == requested else None


# -- the offset


@dataclass(frozen=True)
class Offset:
    """Where the next batch begins: everything below `offset` is durable in Redis. `moved_at_s` is Unix time."""

    offset: int | None = None
    moved_at_s: float = 0.0

    def offset_at(self, now_s: float) -> int | None:
        """The offset to send; None at start, and if the last offset is too old to be valid.

        None is always safe: the server returns what it holds, oldest first, and forgets nothing; updates that were
        appended before are dropped as seen. A negative offset is not safe: the server keeps that many of the newest
        updates and deletes the others unseen. The time is wall-clock time, which advances while the machine sleeps.
        If the clock is set forward, the offset is discarded too early; this costs one batch that is dropped as seen.
        """
        return self.offset if now_s - self.moved_at_s < FORGET_OFFSET_AFTER_S else None

    def after(self, updates: Iterable[Any], now_s: float) -> "Offset":
        """The offset after the highest id of a batch, even if that is lower than before: Telegram restarted the ids."""
        newest = newest_id(updates)
        return self if newest is None else Offset(newest + 1, now_s)


def newest_id(updates: Iterable[Any]) -> int | None:
    """The highest valid update id; None if there is none."""
    return max((update["update_id"] for update in updates if has_id(update)), default=None)


def has_id(update: Any) -> bool:
    """True if the update has a valid id."""
    update_id = update.get("update_id") if isinstance(update, dict) else None
    return type(update_id) is int and 0 <= update_id <= LARGEST_UPDATE_ID
