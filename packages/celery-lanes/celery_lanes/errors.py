"""The errors of lanes. Each message says what to do."""

from __future__ import annotations

from click import ClickException
from redis.exceptions import AuthenticationError, RedisError


class LanesError(Exception):
    """Base class of all errors of lanes."""


class LeaseLost(LanesError):  # noqa: N818 - names a state, as the documentation does
    """The lease is over: another worker may have this message, or another poller the lead.

    Stop and change nothing. A call or write that raises this had no effect.
    """


class Interrupted(LeaseLost):
    """A newer message has ended this run: it belongs to the group of this one, and the next run gets both.

    Stop and change nothing. No attempt is counted.
    """


class RedisAway(LanesError, RedisError):  # noqa: N818 - see above
    """Redis did not answer a client of lanes for as long as the client retries: one lease.

    This is not a failure of the task. A message whose task ends with it is released uncounted and runs again.
    """


class ServerUnfit(LanesError):  # noqa: N818 - see above
    """The Redis server cannot be used for lanes: its version is older than 6.2, or it is a cluster, for example."""


class PublishRefused(LanesError, ClickException, ValueError):  # noqa: N818 - see above
    """A message does not fit its queue. Nothing was published. `celery call` prints it as one sentence.

    A lane queue needs lane keys: at most 64, each of 1 to 256 bytes. An ordinary queue refuses them.
    """


class UnknownVersion(LanesError):  # noqa: N818 - see above
    """A newer release has stored this. It is left as it is."""


class Misconfigured(LanesError, ClickException):  # noqa: N818 - see above
    """The configuration of the app would break the order of lanes, so the worker does not start. `celery worker` prints
    it as one sentence.
    """


def unknown_texts(version: int) -> str:
    """Why a timer cannot be read, and what to do."""
    return (
        f"is packed with version {version} of its app's texts, which this process does not know: start the release "
        "that set it, or a newer one, and stop this one"
    )


def complaint(error: Exception) -> str:
    """The text of a Redis or connection error; for authentication errors, one that says what to do."""
    text = str(error).partition(" : <")[0]  # redis-py adds its objects when no Sentinel answers
    if not isinstance(error, AuthenticationError):
        return text
    if "HELLO must be called" in text or "Authentication required" in text:
        return "the server requires a password, and its URL has none (redis://:password@host:port/0)"
    return f"the server rejects the password of its URL ({text.rstrip('.')})"
