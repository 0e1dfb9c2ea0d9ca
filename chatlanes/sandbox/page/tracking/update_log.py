"""Raw updates and the calls made for each: stored for the page's chats, in memory for the others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from chatlanes.sandbox.page.storage import PageStorage
from chatlanes.sandbox.simulator.stream import Update

#: Updates of chats that are not the page's, remembered with their calls.
MOST_PASSING = 2_000


class UpdateLog:
    """By update id."""

    def __init__(self, storage: PageStorage) -> None:
        self._storage = storage
        self._passing: OrderedDict[int, tuple[Update, list[Any]]] = OrderedDict()

    def add(self, update_id: int, update: Update, *, is_stored: bool) -> None:
        whole = {"update_id": update_id, **update}
        if is_stored:
            self._storage.put_update(update_id, whole)
            return
        self._passing[update_id] = whole, []
        while len(self._passing) > MOST_PASSING:
            self._passing.popitem(last=False)

    def update(self, update_id: int) -> Any:
        """None if it is not known, or not any more."""
        return self._passing[update_id][0] if update_id in self._passing else self._storage.update(update_id)

    def add_call(self, update_id: int, call: dict[str, Any], answer: Any, status: int) -> None:
        noted = {"at_s": call["at"], "method": call["method"], "params": call["params"]}
        noted |= {"answer": answer, "status": status, "place": call.get("place", "")}
        if update_id in self._passing:
            self._passing[update_id][1].append(noted)
        else:
            self._storage.put_call(update_id, noted)

    def calls_of(self, update_id: int) -> list[Any]:
        return self._passing[update_id][1] if update_id in self._passing else self._storage.calls_of(update_id)
