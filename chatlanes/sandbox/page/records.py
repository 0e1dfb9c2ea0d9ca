"""The raw updates and the calls that were made for each: those of the page's chats kept, the others for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from chatlanes.sandbox.page.kept import Kept
from chatlanes.sandbox.simulator.stream import Update

#: Of updates in other chats than the page's are remembered so many, with their calls.
MOST_PASSING = 2_000


class Records:
    """By update id."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._passing: OrderedDict[int, tuple[Update, list[Any]]] = OrderedDict()

    def add(self, update_id: int, update: Update, *, is_kept: bool) -> None:
        whole = {"update_id": update_id, **update}
        if is_kept:
            self._kept.put_update(update_id, whole)
            return
        self._passing[update_id] = whole, []
        while len(self._passing) > MOST_PASSING:
            self._passing.popitem(last=False)

    def update(self, update_id: int) -> Any:
        """None: it is not known, or not any more."""
        return self._passing[update_id][0] if update_id in self._passing else self._kept.update(update_id)

    def add_call(self, update_id: int, call: dict[str, Any], answer: Any, status: int) -> None:
        noted = {"at_s": call["at"], "method": call["method"], "params": call["params"]}
        noted |= {"answer": answer, "status": status}
        if update_id in self._passing:
            self._passing[update_id][1].append(noted)
        else:
            self._kept.put_call(update_id, noted)

    def calls_of(self, update_id: int) -> list[Any]:
        return self._passing[update_id][1] if update_id in self._passing else self._kept.calls_of(update_id)
