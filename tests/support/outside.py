"""The environment of processes that chatlanes configures: that of the tests without the settings of the developer."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from chatlanes.settings import Settings
from tests.support.forks import CELERY

#: FAST is passed on: `FAST=0 pytest` runs without lanes/fast.
OURS = {name.upper() for name in Settings.model_fields} - {"FAST"}

#: What their processes have imported if they are forked. The app acts in each worker of a process that has imported it.
IMPORTED = (
    *(*CELERY, "chatlanes.__main__", "chatlanes.logs.celery_log", "chatlanes.poller.__main__", "chatlanes.tasks.app"),
    *("chatlanes.tasks.bots", "chatlanes.tasks.limits", "chatlanes.tasks.settlement"),  # these make no tasks
)


@cache
def imported_with(bot: str) -> tuple[str, ...]:
    """The same in a worker with this bot. The import of aiogram takes four seconds of a processor."""
    spec = find_spec(bot.partition(":")[0]) if bot.startswith(("examples.", "tests.")) else None
    is_of_aiogram = spec is not None and spec.origin and "aiogram" in Path(spec.origin).read_text()
    return (*IMPORTED, "aiogram") if is_of_aiogram else IMPORTED


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS}
