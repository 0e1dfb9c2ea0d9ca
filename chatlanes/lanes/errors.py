"""The errors of lanes. Each error text says what to do."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, RedisError


class LanesError(Exception):
    """Anything the lanes refuse."""


class LeaseLost(LanesError):  # noqa: N818 - a state of affairs, and the word of the documentation
    """Somebody else may have this message, or the lead, by now: the one who asks must stop and change nothing."""


class RedisAway(LanesError, RedisError):  # noqa: N818 - see above
    """Redis did not answer our own client for as long as that asks. It is not a failure of the task that needed it: a
    message whose task ends with this goes back uncounted.
    """


class ServerUnfit(LanesError):  # noqa: N818 - see above
    """The Redis server cannot carry lanes."""


class PublishRefused(LanesError, ValueError):  # noqa: N818 - see above
    """A message and the queue it was published to do not fit."""


class Misconfigured(LanesError):  # noqa: N818 - see above
    """The app's configuration would break the order of lanes."""


def complaint(error: Exception) -> str:
    """The text of an error of Redis or of the connection to it. Password errors get a text that says what to do."""
    text = str(error).partition(" : <")[0]  # redis-py appends its objects if no Sentinel answers
    if not isinstance(error, AuthenticationError):
        return text
    if "HELLO must be called" in text or "Authentication required" in text:
        return "the server requires a password, and its URL has none (redis://:password@host:port/0)"
    return f"the server rejects the password of its URL ({text.rstrip('.')})"
