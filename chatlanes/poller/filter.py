"""The filter of every source (polls, webhooks, replays): ALLOWED_UPDATES, then FILTER.

Guarantees that a filter function that fails loses nothing: the update is admitted, and the failure is logged once for
each type of error. A malformed update is admitted as well: the append buries it, where it can be seen. Does not count.
"""

import logging
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from chatlanes.poller.offset import has_id
from chatlanes.settings import Settings
from chatlanes.settings.checks import kinds
from chatlanes.settings.imports import ImportPathError, import_callable

log = logging.getLogger("poller")

Wants = Callable[[dict[str, Any]], object]


class FilterError(ImportPathError):
    """FILTER names a function that cannot be imported. Nothing is admitted until it is corrected."""


class Filter:
    """Of one bot. A FILTER function is called once for each update that arrives."""

    def __init__(self, settings: Settings) -> None:
        """Raises FilterError."""
        self._asked_for = frozenset(settings.allowed_updates or ())
        self._kinds, self._own = _parted(settings.filter, settings.name_of("filter"))
        self._told: set[type[Exception]] = set()

    def admitted(self, updates: Sequence[Any]) -> list[Any]:
        """The admitted updates, in their order."""
        coming = of_kinds(of_kinds(updates, self._asked_for), self._kinds)
        return coming if self._own is None else [each for each in coming if self._wants(self._own, each)]

    def _wants(self, wants: Wants, update: Any) -> bool:
        if not has_id(update):
            return True
        try:
            return bool(wants(update))
        except Exception as error:
            if type(error) not in self._told:
                self._told.add(type(error))
                log.exception("FILTER failed at update %d, which comes in; told once", update["update_id"])
            return True


def _parted(text: str | None, setting: str) -> tuple[frozenset[str], Wants | None]:
    if text is None:
        return frozenset(), None
    if ":" not in text:
        return frozenset(kinds(text)), None
    function = import_callable(setting, text, FilterError)
    if iscoroutinefunction(function):
        raise FilterError(f"{setting}={text} is an async function; name one that returns whether it wants the update.")
    return frozenset(), function


def of_kinds(updates: Sequence[Any], kinds: frozenset[str]) -> list[Any]:
    """The updates of these `kinds`; all of them when there are none.

    Telegram applies a changed list only to later updates, so it may still send others. A malformed update passes: the
    append buries it, where it can be seen.
    """
    if not kinds:
        return list(updates)
    return [update for update in updates if not has_id(update) or not kinds.isdisjoint(update)]
