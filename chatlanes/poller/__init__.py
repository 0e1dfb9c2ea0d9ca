"""Moves updates from Telegram into the lanes: `chatlanes poller`, or `run(settings)` in a program.

Guarantees that an update is confirmed to Telegram only after it is durable in Redis. Does not run the bot: the workers
do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlanes.poller.handle import Handle, run

__all__ = ["Handle", "run"]


def __getattr__(name: str) -> object:
    """Imported on first use, so that importing one part of the poller does not import all of it."""
    if name not in __all__:
        raise AttributeError(f"module 'poller' has no attribute {name!r}")
    from chatlanes.poller import handle

    return getattr(handle, name)
