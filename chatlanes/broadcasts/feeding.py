"""Feeds a broadcast: appends its next recipients to their lanes, and moves its place among them in the same step.

Guarantees that no recipient is fed twice, also by two feeders or after a crash: an append is refused unless the place
is still the one that was read (Guard). A feeder runs as a lane task that sets a timer for its next run when it is
settled, so there is always one while its broadcast runs, whichever process dies.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson
from redis import Redis

from celery_lanes.errors import LeaseLost
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Guard, NewMessage, SetTimer, Store
from celery_lanes.protocol.envelope import pack_task
from celery_lanes.protocol.keys import group_of, pending
from chatlanes.broadcasts import keys
from chatlanes.broadcasts.broadcast import BroadcastProgress, Broadcasts, UnknownBroadcastError, missed_line
from chatlanes.broadcasts.pacing import FeedPace, Flood, next_feed
from chatlanes.broadcasts.reasons import Reason
from chatlanes.broadcasts.recipients import CHUNK, unpack
from chatlanes.settings import Settings
from chatlanes.telegram.flood.keys import COUNTS, FLOOD, RATE
from chatlanes.updates.intake import BODY, lanes_of, pack_update
from chatlanes.updates.routing import KeysError, keys_of

#: The name of the task that feeds (chatlanes/tasks/broadcasts.py). A recipient is run by that of every update.
FEED_TASK = "tasks.feed_broadcast"

#: The time between two runs of a feeder. Ten batches a second cost 2 % of a core; larger ones would delay live updates.
FEED_EVERY_MS = 100
#: The same while nothing is due, or while the broadcast waits for the recipients that were fed before.
IDLE_MS = 250

#: A broadcast that was not fed for this long leaves its part of the rate to the others.
SHARES_FOR_MS = 5_000

#: After this many refusals and failures, and no other result, the call or the function itself is probably wrong: the
#: broadcast is paused. After it was resumed, this many more are allowed.
MOST_WRONG_AT_FIRST = 20


def feed_message(settings: Settings, id_: str) -> NewMessage:
    """The message that feeds a broadcast once. Its id is completed when its timer is set."""
    bot_id = settings.bot_id
    return NewMessage(
        id=f"{bot_id}:broadcast:{id_}:feed:",
        queue=settings.broadcast_queue,
        stored=pack_task(FEED_TASK, f"(feeds broadcast {id_})", BODY % orjson.dumps(f"{bot_id}:{id_}")),
        lanes=[f"{bot_id}/broadcast:{id_}"],
    )


def feeder_of(settings: Settings) -> str:
    """The owner of the timers of the feeders."""
    return f"{settings.bot_id}/broadcasts"


def feed_again(settings: Settings, id_: str, in_ms: int) -> SetTimer:
    """The write that sets the timer of the next run; part of this run's commit."""
    message = feed_message(settings, id_)
    owner, lanes = feeder_of(settings), message.lanes
    return SetTimer(owner, id_, message.id, message.queue, message.stored, in_ms=in_ms, lanes=lanes)


class Look(NamedTuple):
    """Everything that decides about the next feed, at one moment. `sharing`: how many broadcasts of the bot are fed,
    with this one; `alive`: the messages of all of them, without that of this run.
    """

    progress: BroadcastProgress
    pace: FeedPace
    flood: Flood
    now_us: int
    sharing: int
    alive: int

    @property
    def rate(self) -> float:
        """The broadcasts of a bot share its rate, because Telegram's limit is that of the bot."""
        return self.progress.rate / self.sharing

    @property
    def pending(self) -> int:
        """Without recipients whose messages were buried: they have no result, and nothing waits for them."""
        return min(self.progress.pending, self.alive)


class Feeder:
    """Feeds the broadcasts of one bot."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.broadcasts = Broadcasts(store.client, settings.bot_id)
        self._chunk: tuple[str, list[int]] = ("", [])

    def start(self, id_: str) -> None:
        """Set the timer of a feeder, which starts a stored broadcast, or continues one. Harmless if there is one."""
        message = feed_message(self._settings, id_)
        self._store.schedule(message, feeder_of(self._settings), id_)
        self.broadcasts.enlist(id_)

    def resume(self, id_: str) -> bool:
        """Continue a paused broadcast, or start a stored one. False if it has ended or runs; then its feeder is started
        if it has none. Raises UnknownBroadcastError.
        """
        was_paused = self.broadcasts.set_state(id_, "running", only_from=("paused",))
        state = self.broadcasts.progress(id_).state
        if state in ("stored", "running"):
            self.start(id_)
        return was_paused or state == "stored"

    def cancel(self, id_: str) -> bool:
        """Feed nothing more, and drop those that are fed and have not started. False if it has ended.

        Raises UnknownBroadcastError.
        """
        is_new = self.broadcasts.set_state(id_, "cancelled", only_from=("stored", "running", "paused"))
        # If the process dies here, nothing ends the broadcast until it is cancelled again.
        if not is_new and self.broadcasts.progress(id_).ended_ms:
            return False
        self.start(id_)  # it ends the broadcast
        return True

    def cancel_all(self) -> None:
        """Cancel each broadcast that has not ended."""
        for each in self.broadcasts.all():
            self.cancel(each.id)

    def feed(self, id_: str) -> int | None:
        """Feed the recipients that are due. Returns the ms until the next run; None: the broadcast needs none."""
        try:
            look = self._look(id_)
        except UnknownBroadcastError:
            return None
        progress = look.progress
        if progress.state == "stored":
            self.broadcasts.begin(progress)
            return FEED_EVERY_MS
        if progress.state == "cancelled":
            return self._end_cancelled(progress, look.alive)
        if progress.state != "running":
            return None
        if progress.unfed == 0:
            return self._end_when_reached(progress, look.alive)
        if progress.wrong == progress.done >= progress.wrong_before + MOST_WRONG_AT_FIRST:
            self.broadcasts.set_state(id_, "paused", only_from=("running",), why=_why(progress))
            return None
        self._share(id_, look.now_us)
        count, pace = next_feed(look.now_us, look.pace, look.rate, look.pending, look.flood)
        self._append(progress, count, pace)
        return FEED_EVERY_MS if count else IDLE_MS

    def _share(self, id_: str, now_us: int) -> None:
        """Say that this broadcast is fed now."""
        name = f"{keys.FEEDING}{self._settings.bot_id}"
        with self._client.pipeline() as pipe:
            pipe.zadd(name, {id_: now_us // 1000})
            pipe.pexpire(name, SHARES_FOR_MS)
            pipe.execute()

    def _look(self, id_: str) -> Look:
        """Raises UnknownBroadcastError."""
        of, bot = self.broadcasts.of(id_), str(self._settings.bot_id)
        group = group_of(self._settings.broadcast_queue)
        with self._client.pipeline() as pipe:
            pipe.hgetall(keys.BROADCAST + of)
            pipe.llen(keys.RETURNED + of)
            pipe.zrange(keys.FEEDING + bot, 0, -1, withscores=True)
            pipe.time()
            pipe.zcard(pending(group))
            pipe.pttl(FLOOD + bot)
            pipe.get(FLOOD + bot)
            pipe.hget(RATE + bot, "next")
            pipe.hget(COUNTS + bot, "refused")
            found, returned, feeding, (seconds, us), alive, paused_ms, whole_ms, slot, refused = pipe.execute()
        if b"fence" not in found:
            raise UnknownBroadcastError(id_)
        now_us = seconds * 1_000_000 + us
        pace = FeedPace(*(int(found.get(name, 0)) for name in (b"fed_us", b"slow", b"slow_us", b"refused")))
        if paused_ms > int(whole_ms or 1) > 1:  # the clock of Redis was set back: the next call begins the pause again
            paused_ms = 0
        flood = Flood(paused_ms, int(slot or 0) - now_us, int(refused or 0))
        if b"refused" not in found:  # calls that were refused before the broadcast do not slow it
            pace = pace._replace(refused=flood.refused)
        progress = BroadcastProgress.of(id_, found, returned)
        others = [name for name, ms in feeding if 0 <= now_us / 1000 - ms < SHARES_FOR_MS and name.decode() != id_]
        return Look(progress, pace, flood, now_us, len(others) + 1, alive - 1)

    def _append(self, progress: BroadcastProgress, count: int, pace: FeedPace) -> None:
        again = self._returned(progress, count)
        chats = self._next(progress, count - len(again))
        fence = f"{progress.fed + len(chats)}:{progress.fed_again + len(again)}"
        rows = again + list(enumerate(chats, progress.fed))
        guard = Guard(
            keys.BROADCAST + self.broadcasts.of(progress.id),
            progress.fence,
            {"fence": fence, **dict(zip(FeedPace._fields, pace, strict=True))},
        )
        try:
            self._store.append([self._message(progress.id, number, chat) for number, chat in rows], guard)
        except LeaseLost:  # another feeder has fed these
            return
        self._delete_fed(progress, progress.fed + len(chats))

    def _message(self, id_: str, number: int, chat: int) -> NewMessage:
        bot_id = self._settings.bot_id
        update = {"broadcast": {"id": id_, "number": number, "chat": {"id": chat}}}
        problem, lanes = None, []
        try:
            lanes = lanes_of(bot_id, keys_of(update, self._settings.order_by))
        except KeysError as error:
            problem = {"type": type(error).__name__, "message": str(error)}
        return NewMessage(
            id=f"{bot_id}:broadcast:{id_}:{number}",
            queue=self._settings.broadcast_queue,
            stored=pack_update(f"(broadcast {id_}, chat {chat})", orjson.dumps(update)),
            lanes=lanes,
            problem=problem,
            stoppable=False,
        )

    def _returned(self, progress: BroadcastProgress, count: int) -> list[tuple[int, int]]:
        """The number and chat of the next recipients that were returned."""
        if count == 0 or progress.returned == progress.fed_again:
            return []
        name, start = keys.RETURNED + self.broadcasts.of(progress.id), progress.fed_again
        found: Any = self._client.lrange(name, start, start + count - 1)
        pairs = (entry.split() for entry in found)
        return [(int(number), int(chat)) for number, chat in pairs]

    def _next(self, progress: BroadcastProgress, count: int) -> list[int]:
        """The next recipients, from the place of the broadcast on."""
        chats: list[int] = []
        at, end = progress.fed, min(progress.fed + count, progress.total)
        while at < end:
            chunk = self._unpacked(progress.id, at // CHUNK)
            start = at % CHUNK
            chats += chunk[start : start + end - at]
            at = progress.fed + len(chats)
            if start >= len(chunk):
                raise LookupError(f"recipients {at} and later of broadcast {progress.id} are not in Redis")
        return chats

    def _unpacked(self, id_: str, number: int) -> list[int]:
        name = f"{id_}:{number}"
        if self._chunk[0] != name:
            self._chunk = (name, unpack(self.broadcasts.recipients(number, id_) or b""))
        return self._chunk[1]

    def _delete_fed(self, progress: BroadcastProgress, fed: int) -> None:
        of = self.broadcasts.of(progress.id)
        done = [f"{keys.CHUNK}{of}:{number}" for number in range(progress.fed // CHUNK, fed // CHUNK)]
        if done:
            self._client.delete(*done)

    def _end_when_reached(self, progress: BroadcastProgress, alive: int) -> int | None:
        """All are fed. Recipients without a result whose messages do not wait or run any more were buried."""
        if progress.pending > 0 and alive > 0:
            return IDLE_MS
        self.broadcasts.end(progress, "done", {Reason.FAILED: max(progress.pending, 0)}, self._buried(progress))
        return None

    def _end_cancelled(self, progress: BroadcastProgress, alive: int) -> int | None:
        if progress.ended_ms:
            return None
        if progress.pending > 0 and alive > 0:
            return IDLE_MS
        buried = self._buried(progress)
        dropped = progress.unfed + max(progress.pending, 0) - len(buried)
        self.broadcasts.end(progress, "cancelled", {Reason.FAILED: len(buried), Reason.DROPPED: dropped}, buried)
        return None

    def _buried(self, progress: BroadcastProgress) -> list[str]:
        """A line of the report for each recipient whose message is among the dead letters."""
        if progress.pending <= 0:
            return []
        recipient = re.compile(re.escape(f"{self._settings.bot_id}:broadcast:{progress.id}:") + r"\d+")
        found = filter(recipient.fullmatch, inspection.dead(self._client))
        updates = [inspection.contents(self._client, message_id)[0] for message_id in found]
        chats = [update["broadcast"]["chat"]["id"] for update in updates]
        return [missed_line(chat, Reason.FAILED, "its message was buried (lanes dead)") for chat in chats]

    @property
    def _client(self) -> Redis:
        return self._store.client


def _why(progress: BroadcastProgress) -> str:
    count = progress.done
    refused = set(progress.counts) == {Reason.REFUSED.value}
    what = f"Telegram refused the first {count} calls" if refused else f"the first {count} recipients failed"
    return f"{what}: `broadcast report {progress.id}` shows why"
