"""Every Redis key of broadcasts, with its type. `<of>` is <bot id>:<broadcast id>. All expire after the end."""

from __future__ import annotations

#: <of>: hash: state, total, rate, fence (how many recipients are fed, and how many returned ones are fed again, joined
#: by a colon), started_ms, ended_ms, why (it was paused), wrong_before, fed_us, slow, slow_us, refused (pacing.py), and
#: for each reason the number of recipients under `count:<reason>`
BROADCAST = "broadcast:"
#: <of>: string: the call, as JSON
CALL = "broadcast-call:"
#: <of>:<number>: string: CHUNK recipients, compressed; deleted when all of them are fed
CHUNK = "broadcast-chunk:"
#: <of>: list: `<number> <chat>` of the recipients that were fed and returned, because the broadcast was paused
RETURNED = "broadcast-returned:"
#: <of>: list: `<chat> <reason> <description>`, joined by tabs, for each recipient that was not reached. One that was
#: buried, and replayed after the end, has another entry, with any reason: the last one of a chat holds
MISSED = "broadcast-missed:"
#: <bot id>: zset: id -> started at, ms
BROADCASTS = "broadcasts:"
#: <bot id>: zset: id -> when it was last fed, ms
FEEDING = "broadcasts-feeding:"

COUNT = "count:"

#: How long the results are kept after the end: long enough for a monthly campaign to use the last one's.
KEPT_S = 60 * 86_400
#: How long a broadcast is kept that no worker has begun: because its command or handler died before it was started, or
#: because no worker has run since. So it is longer than an outage.
UNSTARTED_S = 7 * 86_400
