"""What can go wrong with a Bot API call, one class per meaning.

Promises the method, the chat and Telegram's own words, and that no token is in any of them. They survive pickling: an
error crosses from a prefork child to its parent. Does not decide what to try again: whoever runs the update does.
"""

from typing import Any

ChatId = int | str | None

#: Telegram names the wait in a 429; a proxy before it may not.
RETRY_AFTER_UNNAMED_S = 1.0
#: Telegram refuses methods such as setMyName for a day. What is absurd must not stop a bot for ever.
LONGEST_RETRY_AFTER_S = 86_400.0


class BotApiError(Exception):
    """A call that had no result. `uncertain`: it may have taken effect all the same, and no one can tell."""

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
    """400: Telegram cannot do this; it will not be able to later either."""


class ChatMigrated(BadRequest):
    """400: the group has become a supergroup; `migrate_to_chat_id` is where to send now."""

    def __init__(
        self, method: str, chat: ChatId, description: str, code: int | None = None, migrate_to_chat_id: int = 0
    ) -> None:
        super().__init__(method, chat, description, code)
        self.migrate_to_chat_id = migrate_to_chat_id


class NotModified(BadRequest):
    """400: the message is already what the edit would have made of it."""


class Unauthorized(BotApiError):  # noqa: N818
    """401: Telegram does not know this token (any more)."""


class Forbidden(BotApiError):  # noqa: N818
    """403: the bot was blocked, removed, or never let in."""


class BlockedByUser(Forbidden):
    """403: the user has blocked the bot, or deleted his account. Nothing reaches him until he starts it again."""


class NotFound(BotApiError):  # noqa: N818
    """404: no such method, or a token that cannot be one."""


class Conflict(BotApiError):  # noqa: N818
    """409: another poller or a webhook has the updates of this token."""


class TooManyRequests(BotApiError):  # noqa: N818
    """429: not before `retry_after` seconds from now."""

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
    """5xx, or an answer that no Bot API gives: something between here and Telegram is unwell."""

    uncertain = True


class NetworkError(BotApiError):
    """No answer. Certain only while nothing was sent: no connection, no name, no proxy."""

    def __init__(
        self, method: str, chat: ChatId, description: str, code: int | None = None, uncertain: bool = True
    ) -> None:
        super().__init__(method, chat, description, code)
        self.uncertain = uncertain


#: What only the words of a refusal tell: code, a part of the description, meaning.
_BY_WORDS: tuple[tuple[int, str, type[BotApiError]], ...] = (
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
    for of_code, words, kind in _BY_WORDS:
        if code == of_code and words in description:
            return kind
    return _BY_CODE.get(code, BotApiError)


def _wait_s(named: Any) -> float:
    """An int may be too large for a float; NaN is not at least 0."""
    if type(named) not in (int, float) or not named >= 0:
        return RETRY_AFTER_UNNAMED_S
    return float(min(named, LONGEST_RETRY_AFTER_S))
