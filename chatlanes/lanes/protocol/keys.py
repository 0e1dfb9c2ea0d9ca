"""Every Redis key of the lanes, with its type.

Promises that Python and the scripts name the same keys (a test compares them with lua/prelude.lua). All of
them live in one database: several apps that share it share the lanes, so each puts its own name into its lane
keys and message ids. Redis Cluster is not supported: a script touches keys it is not told beforehand.
"""

#: hash: state, queue, lanes (joined by \n), seq (its place), fence, holder, failed, died, replayed, held, parked, alive
MESSAGE = "lanes:message:"
#: string: the stored message (envelope.py)
BODY = "lanes:body:"
#: list: one JSON problem for each failure
ERRORS = "lanes:errors:"
#: hash: position of a call -> state, fence, what it is and its outcome, joined by blanks; <series>last -> the highest
#: number begun. A position is a number, or a series and a number
JOURNAL = "lanes:journal:"
#: zset: message id -> seq, the first one is the oldest
LANE = "lanes:lane:"
#: list: at most one element, popped by the worker it wakes
BELL = "lanes:bell:"
#: string: bitmap of SEEN_BLOCK consecutive numbers, named <scope>:<block>
SEEN = "lanes:seen:"
#: zset: message id -> expiry, ms; and a half where a sweep extended it
LEASES = "lanes:leases"
#: zset: message id -> due, ms
DELAYED = "lanes:delayed"
#: zset: message id -> buried at, ms
DEAD = "lanes:dead"
#: zset, named by a group of queues: message id -> seq, of all messages that are not buried, the first one is the oldest
PENDING = "lanes:pending:"
#: zset: <scope>:<number> -> until when it is held, ms; without those that only wait for a lower number that is held
HELD = "lanes:held"
#: zset, named <scope>: message id -> number, of those that are held
GAP = "lanes:gap:"
#: zset, named <scope>: <number>:<until when it is waited for, ms> -> number, right above numbers that are missing
MISSING = "lanes:missing:"
#: hash: scope -> the highest number that has lined up
LAST = "lanes:last"
#: hash: seq (the last one), and totals: appended, seen, handed_out, settled, skipped, released,
#: retried, parked, buried, replayed, dropped, expired, refused, repaired, held, late, uncertain, answered
COUNTS = "lanes:counts"
#: hash: queue -> how many messages of it have been settled
SETTLED = "lanes:settled"
#: hash: `times` or `ms`, a kind of parking (may be empty) and a group of queues, by blanks -> how many, for how long
PARKED = "lanes:parked"
#: hash: `wait`, `run` or `recovery`, an upper bound, s, and a group of queues, by blanks -> how many took that long and
#: more than the next lower bound; `sum` instead of a bound -> all of them together, µs; and
#: `lost runs` and a group -> how many (timings.py)
TIMES = "lanes:times"
#: zset: a worker (as `holder` of a message), a blank, and its slots -> until when it is known to be alive, ms
WORKERS = "lanes:workers"
#: hash: lane:<key>, queue:<name> or group:<name>, that nothing is handed out of -> since when, ms
PAUSED = "lanes:paused"
#: string: when the last sweep ran, ms
SWEPT = "lanes:swept"
#: string: when the database got it, µs: by the first process that used it, or by one that found an older state than it
#: had seen. So an emptied database has another one (data_loss.py)
IDENTITY = "lanes:identity"
#: hash: identity -> what was lost when the database got it: at (ms), first, last, how many of these had ended, how many
#: that had ended wait again, and whether it was acknowledged (0 or 1), by blanks
LOSSES = "lanes:losses"
# Besides: one list for each lane queue, under the queue's own name as kombu and Flower expect: ids of ready messages.
# And the key of waitaof.py, which is about the server.

#: Update ids are remembered for as long as Telegram keeps an update at most, twice: 24 h (getUpdates documentation).
SEEN_TTL_S = 48 * 3600
#: 8 KiB for each bitmap: small enough for one update a day, and 50 million consecutive ids take 6 MB.
SEEN_BLOCK = 65_536


def group_of(queue: str) -> str:
    """Queues whose names differ only behind the last dot (`orders.0`, `orders.1`) are of one group: they share a
    backlog, and each group has its turn at a worker, however much is ready in another one.
    """
    return queue.rpartition(".")[0] or queue


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


def lane(key: str) -> str:
    return LANE + key


def bell(queue: str) -> str:
    return BELL + queue
