"""The pollers of many bots in one process, one thread for each.

Guarantees that a bot which fails or cannot be polled does not stop the others, and that each log line names its bot.
The bots share the process and the stop request; each has its own lead, backlog limit and connections.
"""

import logging
from collections.abc import Callable, Sequence
from threading import Thread

from chatlanes.lanes.errors import ServerUnfit
from chatlanes.logs.ids import thread_of
from chatlanes.poller.responses import TokenRefusedError
from chatlanes.poller.runtime import GaveUpError, Stop, Stopping
from chatlanes.settings import Settings
from chatlanes.settings.imports import ImportPathError

log = logging.getLogger("poller")

#: Errors that no retry fixes. The message says what to do.
FINAL = (TokenRefusedError, GaveUpError, ServerUnfit, ImportPathError)
#: After an unexpected failure. The process continues with the other bots, so no supervisor restarts this one.
RESTART_AFTER_S = 30.0

#: Polls one bot until the stop request.
Poll = Callable[[Settings], None]


def poll_all(bots: Sequence[Settings], poll: Poll, stop: Stop) -> bool:
    """Polls every bot until the stop request. False if none of them could be polled."""
    runs = [_BotThread(bot, poll, stop) for bot in bots]
    for run in runs:
        run.thread.start()
    for run in runs:
        run.thread.join()
    return not all(run.has_failed for run in runs)


class _BotThread:
    """The thread of one bot. It has the name of the bot, which each of its log lines contains."""

    def __init__(self, settings: Settings, poll: Poll, stop: Stop) -> None:
        self.thread = Thread(target=self._until_it_ends, name=thread_of(settings.bot_name), daemon=True)
        self.has_failed = False
        self._settings = settings
        self._poll = poll
        self._stop = stop

    def _until_it_ends(self) -> None:
        try:
            while not self._stop.is_requested:
                self._once()
        except Stopping:
            pass
        except FINAL as error:
            self.has_failed = True
            log.error("%s. This bot is not polled until the poller is restarted; the others are.", error)

    def _once(self) -> None:
        try:
            self._poll(self._settings)
        except FINAL:
            raise
        except Exception:
            log.exception("failed; restarts in %d s. Telegram keeps unconfirmed updates", RESTART_AFTER_S)
            self._stop.sleep(RESTART_AFTER_S)
