"""The gate that every call of a bot passes before it is sent: Gate per bot, RunGate per run, Passage per call.

A call that is not held was neither paused nor over a limit at that moment, by Redis' clock. A held call waits, parks
its update, or fails with TooManyRequests. The calls of the hook of an evicted run are not limited.

A wait in place ends early when the worker stops or the lease is lost, except in a prefork child, which learns of
neither and waits at most FLOOD_WAIT. Waits in place count towards UPDATE_TIMEOUT; a wait that would exceed it is parked
instead.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from redis.exceptions import RedisError

from celery_lanes.errors import LeaseLost, RedisAway
from celery_lanes.protocol import Command, script
from celery_lanes.worker import is_stopping
from chatlanes import traces
from chatlanes.telegram.client import Prepared
from chatlanes.telegram.errors import TooManyRequests, Unauthorized
from chatlanes.telegram.flood.keys import ask_keys, keys_of, refused_keys, scope_of
from chatlanes.telegram.flood.parking import Parking

if TYPE_CHECKING:
    from celery_lanes.worker.delivery import Delivery

logger = logging.getLogger(__name__)

#: Sends commands to Redis and returns the replies.
Ask = Callable[..., list[Any]]

ASK, REFUSED, ACCEPTED = (script(name, "chatlanes.telegram.flood") for name in ("ask", "refused", "accepted"))

#: The shortest wait after a 429: `retry_after` is in seconds, and a wait of 0 would make a busy loop.
SHORTEST_S = 1.0
#: A call that would have to wait longer is refused: methods such as setMyName are refused for a day, and the chat of
#: the update would be blocked for that day.
LONGEST_S = 3600.0
#: The number of messages a chat may get at once before its rate applies. Telegram allows short bursts.
BURST = 3
#: The bot may make up for unused slots of the last 0.05 s, so that the limit is exceeded by at most 1 % in any 10 s.
#: Limits below 20 messages/s have no slack, because a single extra message would exceed that.
SLACK_S = 0.05
#: How often a wait in place checks the lease and the worker's state.
CHECK_EVERY_S = 0.2
#: The share by which waits for the whole bot are lengthened at random. Otherwise all parked updates would come back at
#: the same moment and be refused again.
SPREAD = 0.1
#: How long an update waits whose call was refused with 401.
TOKEN_AGAIN_S = 30.0


@dataclass(frozen=True)
class Rates:
    """Messages per second of a bot, per second in one chat, per minute in one group or channel. None: no limit."""

    per_bot: float | None = None
    per_chat: float | None = None
    per_group: float | None = None

    @property
    def are_set(self) -> bool:
        return bool(self.per_bot or self.per_chat or self.per_group)

    def spacing(self, chat: int | str | None) -> Spacing:
        if not self.are_set:
            return _UNLIMITED
        bot_us, chat_us = _interval_us(self.per_bot, 1), _interval_us(self.per_chat, 1)
        group_us = _interval_us(self.per_group, 60) if is_group(chat) else 0
        return Spacing(bot_us, max(0, round(SLACK_S * 1_000_000) - bot_us), chat_us, group_us)


class Spacing(NamedTuple):
    """The times between two messages, as arguments of the script `ask`; 0: no limit."""

    bot_us: int
    slack_us: int
    chat_us: int
    group_us: int


_UNLIMITED = Spacing(0, 0, 0, 0)


def is_group(chat: int | str | None) -> bool:
    """True for groups, supergroups and channels: their ids are negative, or names."""
    return not str(chat).isdecimal() if chat is not None else False


def _interval_us(limit: float | None, period_s: float) -> int:
    """The time between two evenly spaced messages, rounded up; 0: no limit."""
    return math.ceil(period_s * 1_000_000 / limit) if limit else 0


class Verdict(Enum):
    """The result of the script `ask`."""

    GO = "go"
    SLOT = "slot"  # a slot is reserved: send after the wait, unless something is paused by then
    PAUSE = "pause"  # the chat, or the method, is paused
    BOT = "bot"  # the whole bot is paused
    RATE = "rate"  # the chat has reached its rate limit
    BUSY = "busy"  # the bot has reached its rate limit, and the next free slot is later than the longest wait in place


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """`at_us`: end of the wait, by Redis' clock. `some_refused`: calls were refused, and none was accepted since."""

    verdict: Verdict
    wait_s: float
    at_us: int
    some_refused: bool

    @property
    def goes(self) -> bool:
        return self.verdict is Verdict.GO

    @property
    def is_pause(self) -> bool:
        return self.verdict in (Verdict.PAUSE, Verdict.BOT)


def _read(answer: list[Any]) -> GateAnswer:
    verdict, wait_us, at_us, refused = answer
    return GateAnswer(Verdict(verdict.decode()), wait_us / 1_000_000, at_us, bool(refused))


class WaitMode(Enum):
    """How a held call waits."""

    IN_PLACE = 1
    PARKED = 2
    REFUSED = 3  # it does not wait: the caller gets TooManyRequests


def wait_mode(answer: GateAnswer, *, longest_wait_s: float, left_s: float, parks: bool = True) -> WaitMode:
    """`longest_wait_s`: the rest of FLOOD_WAIT for this call. `left_s`: the time until UPDATE_TIMEOUT. `parks`: the run
    can be parked.
    """
    if answer.is_pause and answer.wait_s > LONGEST_S:
        return WaitMode.REFUSED
    if answer.verdict is not Verdict.BUSY and answer.wait_s <= longest_wait_s and answer.wait_s < left_s:
        return WaitMode.IN_PLACE
    return WaitMode.PARKED if parks else WaitMode.REFUSED


@dataclass(frozen=True)
class Gate:
    """The limits of one bot. `longest_wait_s`: the longest wait in place (FLOOD_WAIT)."""

    bot_id: str
    rates: Rates = field(default_factory=Rates)
    longest_wait_s: float = 5.0


class RunGate:
    """A bot's gate for one run of its handler. The handler's threads and greenlets may share it. `parking` is None in a
    hook, which cannot be parked. `deadline_s`: when UPDATE_TIMEOUT is over, as time.monotonic().
    """

    def __init__(
        self, gate: Gate, delivery: Delivery, parking: Parking | None, deadline_s: float | None = None
    ) -> None:
        self.gate, self.delivery, self.parking, self.deadline_s = gate, delivery, parking, deadline_s
        #: The journal answered the last call. It may answer the next one too, which then must not take a slot.
        self.replays = False

    def passage(self, call: Prepared, ask: Ask) -> Passage:
        """The passage of one call. `ask` sends its commands to Redis. Raises ParkUpdate if the run is to be parked."""
        if self.parking is not None:
            self.parking.check()
        return Passage(self, call, ask)

    def without_waits(self) -> RunGate:
        """The gate for calls that are sent now or not at all: it reserves no slot for a later time."""
        return RunGate(replace(self.gate, longest_wait_s=0.0), self.delivery, self.parking, self.deadline_s)

    def for_hook(self) -> RunGate:
        """The gate for a hook, whose run cannot be parked: its calls wait in place or fail with TooManyRequests. The
        deadline of the run does not apply to it.
        """
        return RunGate(self.gate, self.delivery, None)

    def left_s(self) -> float:
        """Seconds until UPDATE_TIMEOUT."""
        return math.inf if self.deadline_s is None else self.deadline_s - time.monotonic()

    def wait_in_place(self, reason: str, wait_s: float) -> None:
        """Sleep for `wait_s`. Raises LeaseLost, and ParkUpdate when the worker stops."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self.delivery.is_lost():
                raise LeaseLost(f"the lease of {self.delivery.id} was lost during a flood wait")
            if self.parking is not None and is_stopping():
                self.park(reason, left_s)
            time.sleep(min(left_s, CHECK_EVERY_S))

    def park(self, reason: str, wait_s: float, *, together: bool = False) -> NoReturn:
        """Raises ParkUpdate. `together`: other updates wait for the same moment, so the wait is spread."""
        assert self.parking is not None, "a hook is refused, not parked"  # noqa: S101
        spread = random.uniform(0.0, SPREAD) if together else 0.0  # noqa: S311  not a secret
        self.parking.park(f"flood wait: {reason}", wait_s * (1 + spread))

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Call when Redis does not answer. Raises ParkUpdate; in a hook, the outage."""
        if self.parking is None:
            raise outage
        self.parking.cut_off(outage)

    def unauthorized(self, error: Unauthorized) -> NoReturn:
        """Call after a 401: the token of this process is wrong, not the update. Raises ParkUpdate; in a hook, the
        error.
        """
        if self.parking is None:
            raise error
        logger.error(
            "Telegram refuses the bot's token: %s is tried again after %.0f s. If the token was replaced, restart all "
            "processes with the new one",
            self.delivery.id,
            TOKEN_AGAIN_S,
        )
        self.parking.park(str(error), TOKEN_AGAIN_S)


class Passage:
    """One call at the gate: ask Redis until the call is not held, send it, and record how Telegram answered."""

    def __init__(self, run: RunGate, call: Prepared, ask: Ask) -> None:
        self._run = run
        self._gate = run.gate
        self._call = call
        self._ask = ask
        self._scope = scope_of(call.method, call.chat)
        self._keys = keys_of(run.gate.bot_id, self._scope)
        self._longest_wait_s = run.gate.longest_wait_s
        self._waited_s = 0.0  # not yet counted in Redis
        self.has_slot = False
        self._asked_for_free = False
        self._some_refused = False

    def commands(self) -> Sequence[Command[Any]]:
        """The commands that ask Redis, to be sent in the same round trip as the journal's; `held` takes the replies."""
        spacing = self._gate.rates.spacing(self._call.chat)
        self._asked_for_free = self._run.replays and self._call.messages > 0
        command = ASK.command(
            ask_keys(self._keys, self._call.method),
            cost=0 if self.has_slot or self._asked_for_free else self._call.messages,
            longest_wait_us=max(0, round(self._longest_wait_s * 1_000_000)),
            bot_us=spacing.bot_us,
            slack_us=spacing.slack_us,
            chat_us=spacing.chat_us,
            group_us=spacing.group_us,
            burst=BURST,
            waited_ms=round(self._waited_s * 1000),
        )
        self._waited_s = 0.0
        return [command]

    def held(self, answers: Sequence[Any]) -> GateAnswer | None:
        """None if the call may be sent now; otherwise it must `wait` and ask again."""
        [answer] = answers
        if isinstance(answer, Exception):
            raise RedisAway(f"the flood-control check of {self._call.method} failed in Redis: {answer}") from answer
        found = _read(answer)
        self._some_refused = found.some_refused
        if not found.goes:
            return found
        self._run.replays = False
        if self._asked_for_free and not self.has_slot and self._gate.rates.are_set:
            return self.held(self._ask(*self.commands()))
        return None

    def replayed(self) -> None:
        """Call when the journal answered the call, so that it is not sent."""
        self._run.replays = True

    def wait(self, answer: GateAnswer) -> None:
        """Wait in place until the call may ask again. Raises ParkUpdate, TooManyRequests, LeaseLost."""
        self.has_slot = False
        run, reason = self._run, self._reason(answer)
        parks = run.parking is not None
        mode = wait_mode(answer, longest_wait_s=self._longest_wait_s, left_s=run.left_s(), parks=parks)
        if mode is WaitMode.REFUSED:
            raise TooManyRequests(self._call.method, self._call.chat, reason, 429, answer.wait_s)
        if mode is WaitMode.PARKED:
            run.park(reason, answer.wait_s, together=answer.verdict is Verdict.BOT)
        if answer.is_pause:
            logger.info("%s: flood wait: %s", run.delivery.id, reason)
        traces.here().event("flood wait", reason=reason, wait_s=answer.wait_s)
        self._longest_wait_s -= answer.wait_s
        run.wait_in_place(reason, answer.wait_s)
        self._waited_s += answer.wait_s
        self.has_slot = answer.verdict is Verdict.SLOT

    def refused(self, error: TooManyRequests) -> GateAnswer:
        """Call after a 429: pauses the chat, method or bot for all workers. Returns the wait of this call."""
        wait_s = max(error.retry_after, SHORTEST_S)
        command = REFUSED.command(refused_keys(self._keys), scope=self._scope, wait_ms=math.ceil(wait_s * 1000))
        [is_bot] = self._ask(command)
        if isinstance(is_bot, Exception):
            raise RedisAway(f"Redis refused to record a 429: {is_bot}") from is_bot
        verdict = Verdict.BOT if is_bot else Verdict.PAUSE
        traces.here().event("refused with 429", retry_after_s=error.retry_after)
        paused, id_ = self._paused(verdict), self._run.delivery.id
        logger.info("%s: %s; on every worker, %s waits %g s", id_, error, paused, wait_s)
        return GateAnswer(verdict, wait_s, 0, some_refused=True)

    def accepted(self) -> None:
        """Call when Telegram accepted the call. Sends nothing to Redis if no call was refused before."""
        if self._some_refused:
            with suppress(RedisError):  # the call itself succeeded
                self._ask(ACCEPTED.command([self._keys.refused]))

    def _paused(self, verdict: Verdict) -> str:
        if verdict is Verdict.BOT:
            return "the bot"
        return self._call.method if self._call.chat is None else f"chat {self._call.chat}"

    def _reason(self, answer: GateAnswer) -> str:
        limited = {
            Verdict.RATE: f"chat {self._call.chat} (RATE_PER_CHAT, RATE_PER_GROUP)",
            Verdict.SLOT: "the bot (RATE_PER_BOT)",
            Verdict.BUSY: "the bot (RATE_PER_BOT)",
        }.get(answer.verdict, self._paused(answer.verdict))
        return f"{limited} waits {answer.wait_s:.1f} s before {self._call.method}"
