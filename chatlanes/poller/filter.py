"""The filter of every source (polls, webhooks, replays): ALLOWED_UPDATES, then FILTER.

Guarantees that an update is admitted if the filter function fails; the failure is logged once for each type of error.
A malformed update, and one with cut values, are admitted too, because the append buries them, where they can be seen.
Does not count updates.
"""

import logging
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from chatlanes.poller.bot_api import has_id
from chatlanes.settings import Settings
from chatlanes.settings.checks import kinds
from chatlanes.settings.imports import import_function
from chatlanes.updates import copy_of
from chatlanes.updates.parsing import KINDS, CutUpdate

log = logging.getLogger("poller")

Wants = Callable[[dict[str, Any]], object]


class Filter:
    """The filter of one bot. A FILTER function is called once for each update that arrives."""

    def __init__(self, settings: Settings) -> None:
        """Raises ImportPathError."""
        self._allowed = frozenset(settings.allowed_updates or ())
        self._kinds, self._function = _parse(settings.filter, settings.name_of("filter"))
        self._logged: set[type[BaseException]] = set()
        for field, names in (("allowed_updates", self._allowed), ("filter", self._kinds)):
            for name in sorted(names - KINDS):
                _warn_of(settings.name_of(field), name)

    def admitted(self, updates: Sequence[Any]) -> list[Any]:
        """The admitted updates, in their order."""
        admitted = of_kinds(of_kinds(updates, self._allowed), self._kinds)
        return admitted if self._function is None else [each for each in admitted if self._wants(self._function, each)]

    def _wants(self, wants: Wants, update: Any) -> bool:
        if not has_id(update) or isinstance(update, CutUpdate):
            return True
        try:
            return bool(wants(copy_of(update)))
        except (Exception, SystemExit) as error:
            if type(error) not in self._logged:
                self._logged.add(type(error))
                log.exception("FILTER failed for update %d, which is admitted; logged once", update["update_id"])
            return True


@cache
def _warn_of(setting: str, name: str) -> None:
    """Once in a process. Telegram adds kinds, so the name of a new one is not an error."""
    near = get_close_matches(name, KINDS, n=1)
    likely = f"did you mean {near[0]}?" if near else "correct it, unless the kind is newer than this version"
    log.warning("%s: %s is not a known kind of update; %s", setting, name, likely)


def _parse(text: str | None, setting: str) -> tuple[frozenset[str], Wants | None]:
    if text is None:
        return frozenset(), None
    if ":" not in text:
        return frozenset(kinds(text)), None
    return frozenset(), import_function(setting, text, "True to admit an update")


def of_kinds(updates: Sequence[Any], kinds: frozenset[str]) -> list[Any]:
    """The updates of these `kinds`; all updates if `kinds` is empty.

    Telegram applies a changed list only to later updates, so it may still send others. A malformed update passes,
    because the append buries it, where it can be seen.
    """
    if not kinds:
        return list(updates)
    return [update for update in updates if not has_id(update) or not kinds.isdisjoint(update)]
