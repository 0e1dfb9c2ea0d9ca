"""Every Redis key of the lanes, with its type.

Guarantees that Python and the scripts use the same keys (a test compares them with lua/lib/prelude.lua). All keys are
in one database: apps that share it share the lanes, so each puts its own name into its lane keys and message ids.
Redis Cluster is not supported, because a script uses keys that are not in its KEYS.
"""

import re

#: hash: state, queue, lanes (joined by \n, with limits and rates: `lane_keys`), seq (its place), fence, holder, failed,
#: died, replayed, held, parked, alive, group, size, open, interrupted, shielded, stopped, unstoppable, taken
#: (lua/take.lua), turn (it is over its rate: due, ms), marked, gathered
MESSAGE = "lanes:message:"
#: string: the stored message (envelope.py)
BODY = "lanes:body:"
#: list: a problem as JSON for each failure
ERRORS = "lanes:errors:"
#: hash: position of a call -> state, fence, what it is, outcome, joined by blanks; <series>last -> the highest number
#: that was begun. A position is a number, or a series and a number. <fence> <position> -> the same for a call that an
#: interrupted run has left
JOURNAL = "lanes:journal:"
#: zset: message id -> seq, the first one is the oldest
LANE = "lanes:lane:"
#: list: the wake-up list of a queue, with at most one element, popped by the worker that it wakes
BELL = "lanes:bell:"
#: string: bitmap of SEEN_BLOCK consecutive numbers, named <scope>:<block>
SEEN = "lanes:seen:"
#: zset: message id -> expiry, ms; plus a half if a sweep extended it
LEASES = "lanes:leases"
#: zset: message id -> due, ms
DELAYED = "lanes:delayed"
#: zset: message id -> due, ms; for groups that wait for further messages, and messages that are over their rate
COLLECTING = "lanes:collecting"
#: zset: <owner>, a newline, <name> of a timer -> due, ms; less a half if it was set for at most a minute
TIMERS = "lanes:timers"
#: string, named by an owner: its timers, as lua/lib/timers.lua describes them
TIMER = "lanes:timer:"
#: hash, named by an owner: the timers that do not fit into that string: name -> the timer, as in the string
OVERFLOW = "lanes:overflow:"
#: list: the writes of a large commit that are not done yet, named by the message; `<id>#<fence>`, as a lease: those of
#: a run that may commit them
STAGED = "lanes:staged:"
#: hash: <owner>, a newline, <name> of a schedule -> what its owner keeps of it, such as its last occurrence
SCHEDULES = "lanes:schedules"
#: hash: key of a lane -> its note: a text that a commit has left for the runs of the messages behind it
NOTES = "lanes:notes"
#: hash: key of a lane -> its mode: queue, collect, interrupt or steer (lua/append.lua)
MODES = "lanes:modes"
#: zset: key of a lane with a rate -> when its next message may start, ms; none: now
PACES = "lanes:paces"
#: zset, named by the key of a limit: message id -> minus its seq if it has a permit, its seq if it waits for one
LIMIT = "lanes:limit:"
#: hash: id of a leased message, or of one that was leased -> its successor (lua/lib/places.lua): queue, lanes and
#: stored message, joined by tabs
SUCCESSORS = "lanes:successors"
#: string, named by the key of a rate: full, at, marked, µs, joined by blanks (lua/append.lua)
RATE = "lanes:rate:"
#: zset: message id -> buried at, ms
DEAD = "lanes:dead"
#: zset, named by a group of queues: message id -> seq, for all messages that are not buried; the first is the oldest
PENDING = "lanes:pending:"
#: zset: <scope>:<number> -> time until which it is held, ms; not for a message that only waits for a lower held one
HELD = "lanes:held"
#: zset, named <scope>: message id -> number, for held messages
GAP = "lanes:gap:"
#: zset, named <scope>: <number>:<time until which messages wait, ms> -> number, for each number right above a gap
MISSING = "lanes:missing:"
#: hash: scope -> the highest number that has joined its lanes
LAST = "lanes:last"
#: hash: seq (the last one), and totals: appended, seen, handed_out, settled, skipped, released,
#: retried, parked, buried, replayed, dropped, expired, refused, repaired, held, late, uncertain, answered, collected,
#: interrupted, stopped, steered, gated, rate_dropped, rate_delayed, rate_marked, scheduled, cancelled, fired
COUNTS = "lanes:counts"
#: hash: queue -> how many messages of it have been settled
SETTLED = "lanes:settled"
#: hash: `times` or `ms`, a kind of parking (may be empty) and a group of queues, by blanks -> how often, or ms
PARKED = "lanes:parked"
#: hash: `wait`, `run` or `recovery`, an upper bound, s, and a group of queues, joined by blanks -> number in this
#: histogram bucket; `sum` instead of a bound -> their sum, µs; `lost runs` and a group -> how many (pending_acks.py)
TIMES = "lanes:times"
#: zset: a worker (as `holder` of a message), a blank, and its slots -> time until which it counts as alive, ms
WORKERS = "lanes:workers"
#: hash: lane:<key>, queue:<name> or group:<name> that is paused -> since when, ms
PAUSED = "lanes:paused"
#: string: time of the last sweep, ms
SWEPT = "lanes:swept"
#: string: the time at which it was set, µs: by the first process that used the database, or by a process that found an
#: older state than it had seen. So an emptied database gets another identity (data_loss.py)
IDENTITY = "lanes:identity"
#: hash: identity -> the loss that was found when it was set, joined by blanks: time (ms), first, last, how many of
#: these had ended, how many that had ended are pending again, whether it is acknowledged (0 or 1)
LOSSES = "lanes:losses"
#: Not a key: the channel, named by a holder, on which the lease (<id>#<fence>) of an interrupted run is published. It
#: is followed by a blank and `arrived` if a message has arrived that the run may take
INTERRUPTS = "lanes:interrupts:"
# Also: one list for each lane queue, under the name of the queue as kombu and Flower expect: ids of ready messages.
# And the WAITAOF_KEY of server.py, which belongs to the server.

#: Precedes the rates of the lanes of a message, where they are stored.
PACED = "\x1f"
#: Precedes each limit of a message there.
LIMITED = "\x1c"

#: A source may repeat a message that was not confirmed to it, for a day at most; its id is remembered for two days.
SEEN_TTL_S = 48 * 3600
#: 8 KiB for each bitmap: small enough for one message a day, and 50 million consecutive ids take 6 MB.
SEEN_BLOCK = 65_536


def group_of(queue: str) -> str:
    """Queues whose names differ only after the last dot (`orders.0`, `orders.1`) are one group. They share a backlog,
    and a worker serves the groups in turn, however many messages are ready in one of them.
    """
    return queue.rpartition(".")[0] or queue


def lane_keys(lanes: str) -> list[str]:
    """The keys of a message from the field `lanes` of its record. A line for each limit follows: \\x1c, how many may
    run, a blank, and its key. If lanes have a rate, a last line follows: \\x1f, and for each key the ms from a start to
    the next one, by blanks; 0: the lane has no rate.
    """
    return [key for key in lanes.split("\n") if key and not key.startswith((PACED, LIMITED))]


def limit_keys(lanes: str) -> list[str]:
    """The keys of the limits of a message, from the same field."""
    return [line.partition(" ")[2] for line in lanes.split("\n") if line.startswith(LIMITED)]


def literal(text: str) -> str:
    """The text in a pattern of Redis, in which it stands for itself."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


def pending(group: str) -> str:
    return PENDING + group


def message(message_id: str) -> str:
    return MESSAGE + message_id


def body(message_id: str) -> str:
    return BODY + message_id


def errors(message_id: str) -> str:
    return ERRORS + message_id


def journal(message_id: str) -> str:
    return JOURNAL + message_id


def timer(owner: str, name: str) -> str:
    return f"{owner}\n{name}"


def lane(key: str) -> str:
    return LANE + key


def bell(queue: str) -> str:
    return BELL + queue
