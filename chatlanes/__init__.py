"""chatlanes turns every Telegram update into one Celery task: in order per chat, none lost, on any number of machines.

The names in `__all__` are public; everything else may change between releases. Each is imported on first access, so
that using one of them does not import the others.

    from chatlanes import Bot, Context
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import celery_lanes as lanes
    from chatlanes import bots, traces
    from chatlanes.bot import (
        AskTimeout,
        Bot,
        Context,
        Schedule,
        SessionError,
        StepError,
        Timer,
        TooMuchStagedError,
        UpdateTimeoutError,
        current,
    )
    from chatlanes.outbox import OutboxFullError, SendError, Sent, send, send_on_commit, sent
    from chatlanes.poller.handle import run
    from chatlanes.poller.webhook.app import webhook
    from chatlanes.settings import Settings, SettingsError, load
    from chatlanes.tasks.app import app
    from chatlanes.telegram import errors
    from chatlanes.telegram.client import BotApi
    from chatlanes.updates.routing import keys_of

#: Module -> the public names that it defines.
_NAMES_OF = {
    "chatlanes.bot": (
        "AskTimeout Bot Context Schedule SessionError StepError Timer TooMuchStagedError UpdateTimeoutError current"
    ),
    "chatlanes.outbox": "OutboxFullError SendError Sent send send_on_commit sent",
    "chatlanes.poller.handle": "run",
    "chatlanes.poller.webhook.app": "webhook",
    "chatlanes.settings": "Settings SettingsError load",
    "chatlanes.tasks.app": "app",
    "chatlanes.telegram.client": "BotApi",
    "chatlanes.updates.routing": "keys_of",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
#: Modules that are public under another name.
_MODULES = {
    "bots": "chatlanes.bots",
    "errors": "chatlanes.telegram.errors",
    "lanes": "celery_lanes",
    "traces": "chatlanes.traces",
}

__all__ = [
    "AskTimeout",
    "Bot",
    "BotApi",
    "Context",
    "OutboxFullError",
    "Schedule",
    "SendError",
    "Sent",
    "SessionError",
    "Settings",
    "SettingsError",
    "StepError",
    "Timer",
    "TooMuchStagedError",
    "UpdateTimeoutError",
    "app",
    "bots",
    "current",
    "errors",
    "keys_of",
    "lanes",
    "load",
    "run",
    "send",
    "send_on_commit",
    "sent",
    "traces",
    "webhook",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        found = getattr(import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        found = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
