"""The lanes in Redis: keys, Lua scripts, and the typed client that calls them. Imports neither Celery nor kombu."""

from celery_lanes.protocol.admin_verbs import Adopted, Element, Leaving, Loss
from celery_lanes.protocol.client import Store
from celery_lanes.protocol.connection import Fate, PipelinedConnection, UnawaitedCommand, connect, connect_like
from celery_lanes.protocol.data_loss import Witness, witness_of
from celery_lanes.protocol.durable import DurableAppends
from celery_lanes.protocol.messages import (
    Add,
    CancelTimer,
    Delete,
    Group,
    Guard,
    Limited,
    Mode,
    Move,
    MoveTimer,
    NewMessage,
    Paced,
    Push,
    Rate,
    Set,
    SetMode,
    SetNote,
    SetTimer,
    Write,
    check_group,
    check_lanes,
    check_limits,
    check_once,
    only_seen,
)
from celery_lanes.protocol.scripts import Argument, Command, Texts, digest, plain, script, use_texts
from celery_lanes.protocol.server import IS_CLUSTER, Durability, Durable, advice, check_rights, check_server, durability
from celery_lanes.protocol.timer_verbs import StoredTimer
from celery_lanes.protocol.verbs import (
    MAX_DEATHS,
    Appended,
    Begun,
    Fetched,
    Kind,
    Leased,
    Noted,
    Outcome,
    PreviousCall,
    Read,
    Shielded,
    Taken,
)
