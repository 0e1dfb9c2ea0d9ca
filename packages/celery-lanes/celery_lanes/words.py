"""The words of an app for its messages, groups of queues and lanes, in log lines and in `lanes …`. Never stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Filled into texts for people. The defaults suit any app."""

    message: str = "message"
    a_message: str = "a message"
    group: str = "group"
    lane: str = "lane"
    #: The task whose messages are shown by their first argument alone; others with the name of their task.
    task: str = ""
    #: How an option says which lane.
    lane_help: str = "its key"
    #: A key of a lane, as an example.
    key: str = "customer:9"
    #: A name of a queue, as an example.
    queue: str = "orders.0"
    #: The word for an append that is safe.
    confirmed: str = "confirmed"
    #: The setting by which appends wait for replicas.
    replicas: str = "`replicas`"
    #: A sentence on messages that Redis lost.
    lost: str = "They are not published again"
    #: How to start the commands.
    command: str = "celery -A … lanes"
    #: The advice if messages wait in queues that no worker reads.
    unread: str = "start a worker for these queues, or delete them"


NEUTRAL = Words()
