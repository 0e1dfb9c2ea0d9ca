"""When Python looks for garbage in a worker: not each time that some messages come in.

Promises that what starts with the process is never looked through, and shared with forked children for as long as they
leave it alone; and that as many objects may be new as the messages in hand need, before the newest are looked through.
They are no garbage, and looking at all of them over and over took a sixth of a worker's time.
"""

from __future__ import annotations

import gc

from chatlanes.lanes.leases.prefetch import Pool
from chatlanes.lanes.transport.pending_fetch import MOST_IN_A_FETCH

#: What the garbage collector knows of one message, from its delivery to its end: about 80, and a handler's own.
OBJECTS = 100


def leave_alone(pool: Pool) -> None:
    """Once, before the pool starts. Its children do the same: they inherit it."""
    # A look for garbage writes to all it looks through, and what was written to is not shared with a child.
    gc.freeze()
    newest, *others = gc.get_threshold()
    if newest:  # else somebody has turned it off
        gc.set_threshold(max(newest, OBJECTS * in_hand(pool)), *others)


def in_hand(pool: Pool) -> int:
    """The most messages at a time: those that run, and a turn's that wait for it."""
    slots = pool.slots()
    return slots + min(slots * pool.spare, MOST_IN_A_FETCH)
