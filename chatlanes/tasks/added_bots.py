"""The bots that were added while this worker runs (BOTS_KEY): each is loaded with its first update.

Guarantees that an update of an added bot is run by its latest token and BOT, and that none of a removed one is run,
from LOOK_EVERY_S after the change on. While Redis does not answer, the bots stay as they are known here.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

from celery.utils.log import get_task_logger
from redis.exceptions import RedisError

from celery_lanes.runtime import clock
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.added_bots import LOOK_EVERY_S, NotOpenedError, Registry

logger = get_task_logger(__name__)


class Known(NamedTuple):
    """The knowledge of a bot id. `served`: the result of `load`; None: it is not served here, because of `why`.
    `is_removed`: the updates that wait for it are settled unrun.
    """

    stored: bytes | None
    served: Any
    why: str
    is_removed: bool


NOBODY = Known(None, None, "", False)


class AddedBots:
    """Threads and greenlets may share it. `load` makes a bot of its settings; it may raise ImportPathError."""

    def __init__(self, settings: Settings, load: Callable[[Settings], object]) -> None:
        """Raises SettingsError."""
        self.settings = settings
        self._registry = Registry.connect(settings)
        self._load = load
        self._lock = Lock()
        self._known: dict[int, Known] = {}
        self._fresh: set[int] = set()  # read since the last change
        self._changes = b""
        self._look_at_s = float("-inf")

    def of(self, bot_id: int) -> Known:
        with self._lock:
            known = self._known.get(bot_id, NOBODY)
            try:
                self._look()
                if bot_id in self._fresh:
                    return known
                stored = self._registry.stored(bot_id)
            except (RedisError, OSError):
                return known  # the run itself finds out that Redis is away
            if known is NOBODY or stored != known.stored:
                known = self._known[bot_id] = self._read(bot_id, stored)
            self._fresh.add(bot_id)
            return known

    def _look(self) -> None:
        """Raises RedisError."""
        if clock.now_s() < self._look_at_s:
            return
        changes = self._registry.changes()
        if changes != self._changes:
            self._fresh.clear()
        self._changes, self._look_at_s = changes, clock.now_s() + LOOK_EVERY_S

    def _read(self, bot_id: int, stored: bytes | None) -> Known:
        if stored is None:
            return NOBODY
        try:
            settings = self._registry.settings_of(bot_id, stored)
            served = None if settings is None else self._load(settings)
        except (NotOpenedError, ImportPathError, SettingsError) as error:
            logger.error("%s", error, exc_info=error.__cause__ if isinstance(error, ImportPathError) else None)
            return Known(stored, None, str(error), False)
        return Known(stored, served, "", settings is None)
