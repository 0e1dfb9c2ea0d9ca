"""BOT names a function that makes the bot: `create_dispatcher`, or a `main` that ends in its polling.

Promises that it is called once, as a part of the import, and that nothing polls: what it gives, or was about to poll
with, is the bot. One that is an `async def` is not called here (async_main.py).
"""

from __future__ import annotations

import inspect
from typing import Any

from chatlanes.bot.adapters.polling import PollingRefused
from chatlanes.settings.imports import BotImportError


def takes_nothing(found: Any) -> bool:
    """Whether it is a function without parameters."""
    return inspect.isfunction(found) and not inspect.signature(found).parameters


def made_by(found: Any, said: str) -> Any:
    """What a plain function without parameters gives; anything else is given back as it is. Raises BotImportError."""
    if not takes_nothing(found) or inspect.iscoroutinefunction(found):
        return found
    try:
        made = found()
    except PollingRefused as started:
        return started.bot
    except Exception as error:
        raise BotImportError(
            f"{said}() failed with {type(error).__name__}; mend it (the traceback above shows where)."
        ) from error
    if made is None:
        raise BotImportError(f"{said}() gave nothing: let it return the bot, or write a handler as `def handle(ctx)`.")
    return made
