"""What is let in: updates of the kinds asked for, that FILTER wants too. Of every way in: polls, webhooks, replays.

Promises that a filter that fails loses nothing: what it could not judge comes in, and its failure is told once for
each type of error. A malformed update comes in as well: the append buries it, where it can be seen.
Does not count: what went in and what came out is the caller's to see.
"""

import logging
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from chatlanes.poller.batch import admitted, has_id
from chatlanes.settings import Settings
from chatlanes.settings.checks import kinds
from chatlanes.settings.imports import ImportPathError, import_callable

log = logging.getLogger("poller")

Wants = Callable[[dict[str, Any]], object]


class FilterError(ImportPathError):
    """FILTER names a function that cannot be had. Nothing can be let in until it is corrected."""


class Filter:
    """Of one bot. A function of yours is called once for each update that comes to the door."""

    def __init__(self, settings: Settings) -> None:
        """Raises FilterError."""
        self._asked_for = frozenset(settings.allowed_updates or ())
        self._kinds, self._own = _parted(settings.filter, settings.name_of("filter"))
        self._told: set[type[Exception]] = set()

    def admitted(self, updates: Sequence[Any]) -> list[Any]:
        """Those that come in, in their order."""
        coming = admitted(admitted(updates, self._asked_for), self._kinds)
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
