"""The broadcasts of one bot in Redis: store, start, pause, resume, cancel, and what they have reached.

Guarantees that a change of state takes effect for every recipient whose run begins after it. The results are written by
the step that settles a recipient's message (`result`), so each recipient is counted once. At the end, those without a
result are counted; one of them that runs later replaces its result.
"""

from __future__ import annotations

import csv
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TextIO, cast

from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Add, Push, Write
from chatlanes.broadcasts import keys
from chatlanes.broadcasts.reasons import DESCRIBED, NOT_REACHED, Reason
from chatlanes.broadcasts.recipients import CHUNK, pack
from chatlanes.logs.foreign_text import visible
from chatlanes.telegram.client import prepare
from chatlanes.telegram.methods import check_method, check_parameters

#: The longest description of a refusal that is kept.
LONGEST_DETAIL = 120
#: How many entries of a list are read at once.
_PAGE = 1_000


class UnknownBroadcastError(Exception):
    """The id is not that of a broadcast, or the broadcast has ended too long ago."""


@dataclass(frozen=True)
class Call:
    """The action for each recipient: one call of a method, or one run of the function `handler`."""

    method: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    handler: str = ""

    @classmethod
    def of_method(cls, method: str, params: dict[str, Any]) -> Call:
        """Raises TypeError or ValueError for a call that no chat could get."""
        if "chat_id" in params:
            raise ValueError(f"chat_id={params['chat_id']!r:.80}: leave it out; each chat gets the call with its own")
        check_method(method)
        check_parameters(method, {"chat_id", *params})
        prepare(method, {"chat_id": 1, **params})
        return cls(method, params)

    @property
    def name(self) -> str:
        return self.method or self.handler


@dataclass(frozen=True)
class BroadcastProgress:
    """A broadcast at one moment. `pending`: recipients that are fed and have no result yet. `wrong_before`: the wrong
    results of before it was resumed.
    """

    id: str
    state: str  # stored, running, paused, cancelled or done
    total: int
    rate: float
    fed: int
    fed_again: int
    returned: int
    counts: dict[str, int]
    started_ms: int
    ended_ms: int
    why: str = ""
    wrong_before: int = 0

    @property
    def wrong(self) -> int:
        """The results that the call or the function itself may have caused."""
        return self.counts.get(Reason.REFUSED.value, 0) + self.counts.get(Reason.FAILED.value, 0)

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def pending(self) -> int:
        return 0 if self.ended_ms else self.fed + self.fed_again - self.returned - self.done

    @property
    def unfed(self) -> int:
        return 0 if self.ended_ms else self.total - self.fed + self.returned - self.fed_again

    @property
    def fence(self) -> str:
        return f"{self.fed}:{self.fed_again}"

    @classmethod
    def of(cls, id_: str, found: dict[bytes, bytes], returned: int) -> BroadcastProgress:
        """`found`: the hash of the broadcast."""
        fields = {name.decode(): value.decode() for name, value in found.items()}
        fed, _, again = fields["fence"].partition(":")
        names = {keys.COUNT + reason.value: reason.value for reason in Reason}
        return cls(
            id_,
            fields["state"],
            int(fields["total"]),
            float(fields["rate"]),
            int(fed),
            int(again),
            returned,
            {reason: int(fields[name]) for name, reason in names.items() if name in fields},
            int(fields.get("started_ms", 0)),
            int(fields.get("ended_ms", 0)),
            fields.get("why", ""),
            int(fields.get("wrong_before", 0)),
        )


def new_id() -> str:
    """Sorts by time, and is unique enough to be typed: `1122-0830-4f2a`."""
    return f"{time.strftime('%m%d-%H%M', time.gmtime())}-{secrets.token_hex(2)}"


def bots_with(client: Redis, id_: str) -> set[int]:
    """The ids of the bots that have a broadcast of this id, `*`: any. Scans all keys of the database."""
    found = client.scan_iter(f"{keys.BROADCAST}*:{id_}", count=1000)
    return {int(key.split(b":")[1]) for key in found}


def missed_line(chat: int, reason: Reason, detail: str) -> str:
    """An entry of the list of those that were not reached. Most reasons need no description, and a million of them take
    20 MB.
    """
    kept = visible(" ".join(detail.split())[:LONGEST_DETAIL]) if reason in DESCRIBED else ""
    return f"{chat}\t{reason.value}\t{kept}"


class Broadcasts:
    """The broadcasts of one bot."""

    def __init__(self, client: Redis, bot_id: int) -> None:
        self.client = client
        self.bot_id = bot_id

    def store(self, id_: str, call: Call, chats: Sequence[int], rate: float) -> None:
        """Store a broadcast that is not started yet. It expires if nobody starts it. One of this id that has started
        stays as it is.

        The memory that it takes is 5 to 6 bytes for each recipient, and less with each chunk that is fed.
        """
        of = self.of(id_)
        self.client.transaction(partial(self._store, of, call, len(chats), rate), keys.BROADCAST + of)
        for number, chunk in enumerate(pack(chats)):
            self.client.set(f"{keys.CHUNK}{of}:{number}", chunk, ex=keys.UNSTARTED_S)

    def _store(self, of: str, call: Call, total: int, rate: float, pipe: Any) -> None:
        """Called again if the broadcast has changed meanwhile."""
        if pipe.hget(keys.BROADCAST + of, "state") not in (None, b"stored"):
            return
        fields = {"state": "stored", "total": total, "rate": rate, "fence": "0:0"}
        pipe.multi()
        pipe.delete(keys.BROADCAST + of)
        pipe.hset(keys.BROADCAST + of, mapping=fields)
        pipe.expire(keys.BROADCAST + of, keys.UNSTARTED_S)
        pipe.set(keys.CALL + of, json.dumps(asdict(call)), ex=keys.UNSTARTED_S)

    def begin(self, progress: BroadcastProgress) -> None:
        """Start a stored broadcast. Called by its feeder: from then on it does not expire. One that is not stored any
        more, such as one that was cancelled meanwhile, stays as it is.
        """
        of, now_ms = self.of(progress.id), self._now_ms()

        def start(pipe: Any) -> None:
            """Called again if the broadcast has changed meanwhile."""
            if pipe.hget(keys.BROADCAST + of, "state") != b"stored":
                return
            pipe.multi()
            for name in (keys.BROADCAST + of, keys.CALL + of, *self._chunks(progress)):
                pipe.persist(name)
            pipe.hset(keys.BROADCAST + of, mapping={"state": "running", "started_ms": now_ms, "fed_us": now_ms * 1000})
            pipe.zadd(keys.BROADCASTS + str(self.bot_id), {progress.id: now_ms})

        self.client.transaction(start, keys.BROADCAST + of)

    def enlist(self, id_: str) -> None:
        """Add one that no worker has begun yet to `all`."""
        self.client.zadd(keys.BROADCASTS + str(self.bot_id), {id_: self._now_ms()}, nx=True)

    def end(
        self, progress: BroadcastProgress, state: str, counts: Mapping[Reason, int], missed: Sequence[str] = ()
    ) -> None:
        """Count the recipients that have no result yet, keep the results for KEPT_S, and delete the rest, in one
        step.
        """
        of = self.of(progress.id)
        with self.client.pipeline() as pipe:
            for reason, count in counts.items():
                if count:
                    pipe.hincrby(keys.BROADCAST + of, keys.COUNT + reason.value, count)
            if missed:
                pipe.rpush(keys.MISSED + of, *missed)
            pipe.hset(keys.BROADCAST + of, mapping={"state": state, "ended_ms": self._now_ms()})
            for name in (keys.BROADCAST + of, keys.CALL + of, keys.MISSED + of):
                pipe.expire(name, keys.KEPT_S)
            pipe.delete(keys.RETURNED + of, *self._chunks(progress))
            pipe.zrem(keys.FEEDING + str(self.bot_id), progress.id)
            pipe.execute()

    def set_state(self, id_: str, state: str, *, only_from: tuple[str, ...], why: str = "") -> bool:
        """Change the state of a broadcast. False if it is in none of the states `only_from`.

        Raises UnknownBroadcastError.
        """
        name = keys.BROADCAST + self.of(id_)

        def change(pipe: Any) -> Any:
            """Called again if the broadcast has changed meanwhile."""
            now = self.progress(id_)
            if now.state not in only_from:
                return False
            pipe.multi()
            pipe.hset(name, mapping={"state": state, "why": why, "wrong_before": now.wrong})
            return True

        changed: Any = self.client.transaction(change, name, value_from_callable=True)
        return bool(changed)

    def progress(self, id_: str) -> BroadcastProgress:
        """Raises UnknownBroadcastError."""
        [found] = self._progress([id_])
        if found is None:
            raise UnknownBroadcastError(f"there is no broadcast {id_} of this bot: `broadcast status` lists them")
        return found

    def all(self) -> list[BroadcastProgress]:
        """The broadcasts whose results are still kept, the oldest first."""
        name = keys.BROADCASTS + str(self.bot_id)
        stored: Any = self.client.zrange(name, 0, -1)
        ids = [id_.decode() for id_ in stored]
        found = dict(zip(ids, self._progress(ids), strict=True))
        if expired := [id_ for id_, progress in found.items() if progress is None]:
            self.client.zrem(name, *expired)
        return [progress for progress in found.values() if progress is not None]

    def _progress(self, ids: Sequence[str]) -> list[BroadcastProgress | None]:
        with self.client.pipeline() as pipe:
            for id_ in ids:
                pipe.hgetall(keys.BROADCAST + self.of(id_))
                pipe.llen(keys.RETURNED + self.of(id_))
            rows = iter(pipe.execute())
        return [
            BroadcastProgress.of(id_, found, returned) if b"fence" in found else None
            for id_, found, returned in zip(ids, rows, rows, strict=True)
        ]

    def recipients(self, number: int, id_: str) -> bytes | None:
        """The packed recipients of one chunk."""
        chunk: Any = self.client.get(f"{keys.CHUNK}{self.of(id_)}:{number}")
        return cast("bytes | None", chunk)

    def missed(self, id_: str) -> Iterator[tuple[int, str, str]]:
        """(chat, reason, description) of each recipient that was not reached."""
        name, start, last = keys.MISSED + self.of(id_), 0, dict[int, tuple[str, str]]()
        while found := self.client.lrange(name, start, start + _PAGE - 1):
            for entry in cast("list[bytes]", found):
                number, reason, detail = entry.decode().split("\t", 2)
                last[int(number)] = reason, detail
            start += _PAGE
        not_reached = {each.value for each in NOT_REACHED}
        yield from ((chat, *entry) for chat, entry in last.items() if entry[0] in not_reached)

    def report(self, id_: str, to: TextIO, only: Sequence[str] = ()) -> None:
        """Write the recipients that were not reached as CSV."""
        rows = [row for row in self.missed(id_) if not only or row[1] in only]
        csv.writer(to).writerows([("chat_id", "reason", "description"), *rows])

    def result(self, id_: str, chat: int, reason: Reason, detail: str = "", *, is_counted: bool = False) -> list[Write]:
        """The writes that record how a recipient's part has ended. `is_counted`: the end of the broadcast has counted
        it as failed, because its message was buried.
        """
        of = self.of(id_)
        writes: list[Write] = [Add(keys.BROADCAST + of, keys.COUNT + reason.value)]
        if is_counted:
            writes.append(Add(keys.BROADCAST + of, keys.COUNT + Reason.FAILED.value, -1))
        if is_counted or reason in NOT_REACHED:
            writes.append(Push(keys.MISSED + of, missed_line(chat, reason, detail)))
        return writes

    def returned(self, id_: str, number: int, chat: int) -> list[Write]:
        """The write that returns a recipient whose broadcast is paused; it is fed again later."""
        return [Push(keys.RETURNED + self.of(id_), f"{number} {chat}")]

    def of(self, id_: str) -> str:
        return f"{self.bot_id}:{id_}"

    def _now_ms(self) -> int:
        return inspection.now_us(self.client) // 1000

    def _chunks(self, progress: BroadcastProgress) -> list[str]:
        return [f"{keys.CHUNK}{self.of(progress.id)}:{number}" for number in range(-(-progress.total // CHUNK))]
