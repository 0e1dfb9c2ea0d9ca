"""Features of an Application that do not work here: logged once, or refused when a handler uses them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, NoReturn

from chatlanes.bot.adapters.errors import PermanentError, warn_of_address
from chatlanes.bot.adapters.ptb.conversations import AnyApplication
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

_OFF = (
    "the job queue does not run here, because a job exists in one process only and is lost with it: send a Celery task "
    "with a countdown, or run jobs in a separate process (docs/migrate/index.md)"
)


class NoJobsError(PermanentError, RuntimeError):
    """A handler used the job queue, whose jobs would never run."""


class NoJobQueue:
    """Replaces the job queue: it has no jobs and accepts none."""

    scheduler = SimpleNamespace(running=False)

    def jobs(self, *_: object) -> tuple[()]:
        return ()

    def get_jobs_by_name(self, name: str) -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoJobsError(f"job_queue.{name}: {_OFF}")


def switch_off(application: AnyApplication, api: BotApi) -> None:
    bot: Any = application.bot
    queue = application._job_queue
    if queue and queue.jobs():
        log.warning("%s; %d jobs will not run", _OFF, len(queue.jobs()))
    application._job_queue = NoJobQueue()
    warn_of_address(bot.base_url.partition("/bot")[0], api)
