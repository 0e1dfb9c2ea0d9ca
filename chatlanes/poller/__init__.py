"""Takes updates from Telegram and puts them into the lanes: `chatlanes poller`, or `run(settings)` in a program.

Promises that Telegram is told to forget an update only after Redis holds it durably.
Does not run the bot: that is the workers' part.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlanes.poller.handle import Handle, run

__all__ = ["Handle", "run"]


def __getattr__(name: str) -> object:
    """When asked for: nobody who imports a part of the poller pays for the whole."""
    if name not in __all__:
        raise AttributeError(f"module 'poller' has no attribute {name!r}")
    from chatlanes.poller import handle

    return getattr(handle, name)
