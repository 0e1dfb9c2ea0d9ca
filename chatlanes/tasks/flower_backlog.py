"""The backlog on Flower's broker page.

Flower shows the length of a queue's list, which holds only messages that are ready: one for each lane. The rows added
here count the messages that wait behind them, those that workers have, and retries. The queues of a group are one row,
which opens. Flower's API for queue lengths is unchanged.
"""

import asyncio
from collections.abc import Iterable
from html import escape
from typing import Any

from redis import Redis

from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.store import Store
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to

ANSWER_WITHIN_S = 2.0

Row = dict[str, Any]


def show_backlog(settings: Settings) -> None:
    """For the broker page of this process."""
    from flower.views.broker import BrokerView

    get_broker = BrokerView.get_broker

    def with_backlog(self: Any) -> "BrokerWithBacklog":
        return BrokerWithBacklog(get_broker(self), settings)

    BrokerView.get_broker = with_backlog
    render_string = BrokerView.render_string

    def with_queues(self: Any, name: str, **values: Any) -> bytes:
        page: bytes = render_string(self, name, **values)
        for row in values.get("queues", ()):
            if row.get("queues"):
                page = page.replace(f"<td>{escape(row['name'])}</td>".encode(), f"<td>{opening(row)}</td>".encode(), 1)
        return page

    BrokerView.render_string = with_queues


def opening(row: Row) -> str:
    """HTML: the name of the row, which opens a list of its queues."""
    items = "".join(f"<li>{escape(each['name'])}: {each['messages_ready']} ready</li>" for each in row["queues"])
    return f"<details><summary>{escape(row['name'])}</summary><ul>{items}</ul></details>"


class BrokerWithBacklog:
    """Flower's own broker, with more rows."""

    def __init__(self, broker: Any, settings: Settings) -> None:
        self._broker, self._settings = broker, settings

    async def queues(self, names: Iterable[str]) -> list[Row]:
        """Raises what the broker raises, and RedisError."""
        queues = await self._broker.queues(names)
        return await asyncio.to_thread(self._read, queues)

    def _read(self, queues: list[Row]) -> list[Row]:
        groups = dict.fromkeys(each.queue_group for each in (*self._settings.served, self._settings))
        with connect_to(self._settings, ANSWER_WITHIN_S) as client:
            return rows(client, list(groups), queues)


def rows(client: Redis, groups: list[str], queues: list[Row]) -> list[Row]:
    """The rows of the groups, each with its queues, and the other `queues`. The length of a lane queue is its number of
    ready messages.
    """
    others = [queue for queue in queues if keys.group_of(queue["name"]) not in groups]
    store, lanes = Store(client), []
    for group in groups:
        pending = store.pending(group)
        ours = [queue for queue in queues if keys.group_of(queue["name"]) == group]
        if pending or ours:
            ready = [{"name": queue["name"], "messages_ready": queue["messages"]} for queue in ours]
            name = f"{group}.*, all lanes (details: chatlanes lanes status)"
            counts = {"messages": pending, "messages_ready": sum(each["messages_ready"] for each in ready)}
            lanes.append({"name": name, **counts, "queues": ready})
    return [
        *lanes,
        {"name": "handed out to workers", "messages_unacknowledged": int(client.zcard(keys.LEASES))},
        {"name": "waiting for a retry", "messages": inspection.delayed(client)},
        {"name": "buried", "messages": int(client.zcard(keys.DEAD))},
        *others,
    ]
