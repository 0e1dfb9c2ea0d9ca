"""The errors of Bot API calls, one class per meaning.

Each error holds the method, the chat and Telegram's description, never a token, and survives pickling, because errors
cross from prefork children to their parent. The errors do not decide whether a call or an update is retried.
"""

from typing import Any

ChatId = int | str | None

#: The wait after a 429 that names none. Telegram always names it; a proxy may not.
RETRY_AFTER_UNNAMED_S = 1.0
#: Telegram refuses methods such as setMyName for up to a day. A longer `retry_after` is not plausible, and must not
#: stop a bot indefinitely.
LONGEST_RETRY_AFTER_S = 86_400.0


class BotApiError(Exception):
    """A call failed. `uncertain`: it may have taken effect nevertheless, which cannot be found out."""

    uncertain = False

    def __init__(self, method: str, chat: ChatId, description: str, code: int | None = None) -> None:
        super().__init__(method, chat, description, code)
        self.method = method
        self.chat = chat
        self.description = description
        self.code = code

    def __str__(self) -> str:
        to = "" if self.chat is None else f" to chat {self.chat}"
        return f"{self.method}{to}: {self.description}"


class BadRequest(BotApiError):  # noqa: N818  the meaning is the name, as in Telegram's own descriptions
    """400: the request is invalid. Sending it again does not help."""


class ChatMigrated(BadRequest):
    """400: the group has become a supergroup, whose chat id is `migrate_to_chat_id`."""

    def __init__(
        self, method: str, chat: ChatId, description: str, code: int | None = None, migrate_to_chat_id: int = 0
    ) -> None:
        super().__init__(method, chat, description, code)
        self.migrate_to_chat_id = migrate_to_chat_id


class NotModified(BadRequest):
    """400: the edit would not change the message."""


class Unauthorized(BotApiError):  # noqa: N818
    """401: the token is invalid or was revoked."""


class Forbidden(BotApiError):  # noqa: N818
    """403: the bot was blocked or removed, or was never a member of the chat."""


class BlockedByUser(Forbidden):
    """403: the user blocked the bot or deleted the account. No message arrives until the user starts the bot again."""


class NotFound(BotApiError):  # noqa: N818
    """404: the method does not exist, or the token is malformed."""


class Conflict(BotApiError):  # noqa: N818
    """409: another poller, or a webhook, receives the updates of this token."""


class TooManyRequests(BotApiError):  # noqa: N818
    """429: too many requests. The call may be repeated after `retry_after` seconds."""

    def __init__(
        self,
        method: str,
        chat: ChatId,
        description: str,
        code: int | None = None,
        retry_after: float = RETRY_AFTER_UNNAMED_S,
    ) -> None:
        super().__init__(method, chat, description, code)
        self.retry_after = retry_after


class ServerError(BotApiError):
    """5xx, or a response that is not from a Bot API: Telegram, or a proxy before it, has a failure."""

    uncertain = True


class NetworkError(BotApiError):
    """No complete response. Not `uncertain` only if nothing was sent: no connection, no name resolution, no proxy."""

    def __init__(
        self, method: str, chat: ChatId, description: str, code: int | None = None, uncertain: bool = True
    ) -> None:
        super().__init__(method, chat, description, code)
        self.uncertain = uncertain


def stored(error: BotApiError) -> dict[str, Any]:
    """The error as JSON, for `restored`."""
    return {"kind": type(error).__name__, **vars(error)}


def restored(fields: dict[str, Any]) -> BotApiError:
    given = {**fields}
    kind: type[BotApiError] = globals().get(given.pop("kind"), BotApiError)
    return kind(**given)


#: Errors that only the description distinguishes: code, part of the description, class.
_BY_DESCRIPTION: tuple[tuple[int, str, type[BotApiError]], ...] = (
    (400, "message is not modified", NotModified),
    (403, "bot was blocked by the user", BlockedByUser),
    (403, "user is deactivated", BlockedByUser),
)
_BY_CODE = {400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 413: BadRequest}


def refusal(method: str, chat: ChatId, code: int, description: str, parameters: dict[str, Any]) -> BotApiError:
    """The error that Telegram's code and parameters mean."""
    migrated_to = parameters.get("migrate_to_chat_id")
    if code == 429:
        return TooManyRequests(method, chat, description, code, _wait_s(parameters.get("retry_after")))
    if code == 400 and type(migrated_to) is int:
        return ChatMigrated(method, chat, description, code, migrated_to)
    if code >= 500:
        return ServerError(method, chat, description, code)
    return _kind(code, description.lower())(method, chat, description, code)


def _kind(code: int, description: str) -> type[BotApiError]:
    for error_code, text, kind in _BY_DESCRIPTION:
        if code == error_code and text in description:
            return kind
    return _BY_CODE.get(code, BotApiError)


def _wait_s(named: Any) -> float:
    """Seconds to wait. The comparisons also handle NaN and an int that is too large for a float."""
    if type(named) not in (int, float) or not named >= 0:
        return RETRY_AFTER_UNNAMED_S
    return float(min(named, LONGEST_RETRY_AFTER_S))
