"""`lanes …` of chatlanes: the commands of celery_lanes.cli in the words of bots, and those for bots alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from celery_lanes.cli.group import Group, filled
from chatlanes.bots import AddError
from chatlanes.broadcasts import RateError, UnknownBroadcastError
from chatlanes.cli import metrics
from chatlanes.cli.bots import bots
from chatlanes.cli.broadcast import broadcast
from chatlanes.cli.chat import chat, pause_chat, resume_chat
from chatlanes.cli.check import checks
from chatlanes.cli.context import BotContext
from chatlanes.cli.outbox import send, sent
from chatlanes.cli.schedules import schedules
from chatlanes.outbox import SendError
from chatlanes.settings import SettingsError
from chatlanes.updates.added_bots import NotOpenedError

HELP = {
    "": """Show the lanes, handle buried updates, pause and resume, check the deployment.

`chatlanes lanes` takes REDIS_URL, BOT_TOKEN and all other settings from the environment, or from the file .env in this
folder. Without them it uses the sandbox that runs in this folder. `celery -A yours lanes` is for an app of your own.
""",
    "check": "Check Redis, its durability, the clocks, the workers and their versions, and the intake. "
    "Code 1: one failed.",
    "status": "Show waiting, running and buried updates per bot and queue, the busiest chats, and the reason why "
    "they wait.",
    "pause": "Stop handing out updates of a chat, a queue or a bot. Updates still come in, and running handlers "
    "finish.",
    "dead show": """Show one buried update: its lanes, its errors with tracebacks, and its content as Telegram sent it.

Attempts that failed in the same way have one traceback. If it was collected with others, all of them are shown:
they are one dead letter.
""",
}


@dataclass
class BotCommands(BotContext):
    """Named by the chatlanes app (lanes.install)."""

    help: ClassVar[Mapping[str, str]] = HELP
    errors = (*BotContext.errors, AddError, NotOpenedError, RateError, SendError, SettingsError, UnknownBroadcastError)

    @classmethod
    def extend(cls, group: Group) -> None:
        # Updates are in lanes from the first to the last; an outbox is a table of another app, and calls are in `send`.
        for name in ("adopt", "move-out", "outbox"):
            del group.commands[name]
        for each in (bots, broadcast, chat, schedules, send, sent):
            group.add_command(filled(each, cls.words))
        for name, command in (("pause", pause_chat), ("resume", resume_chat)):
            parent: Any = group.commands[name]
            parent.add_command(filled(command, cls.words))

    def checks(self, of_workers: Iterator[Any]) -> Iterator[Any]:
        return checks(self, of_workers)

    @property
    def counters(self) -> Mapping[str, str]:
        return metrics.COUNTERS

    def metrics(self) -> Iterable[Any]:
        return metrics.families(self)
