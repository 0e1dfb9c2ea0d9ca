"""The lanes in Redis: keys, Lua scripts, and the typed commands around them. Imports neither Celery nor kombu."""

from chatlanes.lanes.protocol import envelope, keys
from chatlanes.lanes.protocol.commands import Delete, Group, Guard, Move, NewMessage, Set, Write, only_seen
from chatlanes.lanes.protocol.connect import connect, connect_like
from chatlanes.lanes.protocol.data_loss import Witness, witness_of
from chatlanes.lanes.protocol.durable import DurableAppends
from chatlanes.lanes.protocol.pipelined import Fate, PipelinedCommand, UnawaitedCommand
from chatlanes.lanes.protocol.pipelined_pool import PipelinedPool
from chatlanes.lanes.protocol.replies import (
    Appended,
    Begun,
    Fetched,
    History,
    Kind,
    Leased,
    Loss,
    Noted,
    Outcome,
    PreviousCall,
    Read,
)
from chatlanes.lanes.protocol.scripts import digest, script
from chatlanes.lanes.protocol.server import Durability, advice, check_server, durability
from chatlanes.lanes.protocol.store import Store

__all__ = [
    "Appended",
    "Begun",
    "Delete",
    "Durability",
    "DurableAppends",
    "Fate",
    "Fetched",
    "Group",
    "Guard",
    "History",
    "Kind",
    "Leased",
    "Loss",
    "Move",
    "NewMessage",
    "Noted",
    "Outcome",
    "PipelinedCommand",
    "PipelinedPool",
    "PreviousCall",
    "Read",
    "Set",
    "Store",
    "UnawaitedCommand",
    "Witness",
    "Write",
    "advice",
    "check_server",
    "connect",
    "connect_like",
    "digest",
    "durability",
    "envelope",
    "keys",
    "only_seen",
    "script",
    "witness_of",
]
