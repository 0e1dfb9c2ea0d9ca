"""The gate that every call of a bot passes before it is sent: for the bot, for one run, and for one call.

Guarantees that a call which is not held was neither paused nor over a limit at that moment, by Redis' clock. A call
that is held waits, parks its update, or fails with Telegram's refusal. A run that came through no lane is not limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from redis.exceptions import RedisError

from chatlanes import traces
from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.lanes.protocol.scripts import script
from chatlanes.telegram.client import Prepared
from chatlanes.telegram.errors import TooManyRequests
from chatlanes.telegram.flood.decisions import GateAnswer, How, What, how, read
from chatlanes.telegram.flood.keys import asked_of, keys_of, refused_of, scope_of
from chatlanes.telegram.flood.rates import BURST, Rates
from chatlanes.telegram.flood.waiting import Waiting

#: Asks Redis, and gives the answers.
Ask = Callable[..., list[Any]]

ASK, REFUSED, ACCEPTED = (script(name, "chatlanes.telegram.flood") for name in ("ask", "refused", "accepted"))

#: Telegram counts in seconds. A wait of nothing would be a loop.
SHORTEST_S = 1.0


@dataclass(frozen=True)
class Gate:
    """Of one bot. `patience_s`: the longest wait in place (FLOOD_WAIT)."""

    bot_id: str
    rates: Rates = field(default_factory=Rates)
    patience_s: float = 5.0


class OpenGate:
    """Lets every call pass: for runs that came through no lane, and have nothing to ask."""

    def passage(self, call: Prepared, ask: Ask) -> OpenPassage:
        return OpenPassage()

    def cut_off(self, outage: RedisAway) -> NoReturn:
        raise outage

    def beside(self) -> OpenGate:
        return self


class OpenPassage:
    """See Passage."""

    def questions(self) -> Sequence[PipelinedCommand]:
        return ()

    def held(self, answers: Sequence[Any]) -> GateAnswer | None:
        return None

    def replayed(self) -> None: ...

    def wait(self, answer: GateAnswer) -> None: ...

    def refused(self, error: TooManyRequests) -> GateAnswer:
        raise error

    def accepted(self) -> None: ...


class RunGate:
    """A bot's gate for one run of its handler. Threads and greenlets of the handler may share it."""

    def __init__(self, gate: Gate, waiting: Waiting) -> None:
        self.gate = gate
        self.waiting = waiting
        #: The last call was answered by the journal: the next one may be too, and must not cost a slot.
        self.replays = False

    def passage(self, call: Prepared, ask: Ask) -> Passage:
        """`ask` gives Redis' answers to what the passage asks. Raises ParkUpdate when the run is to end."""
        self.waiting.check()
        return Passage(self, call, ask)

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """A call could not be made because Redis is away. Raises ParkUpdate, or the outage for a hook."""
        self.waiting.cut_off(outage)

    def beside(self) -> RunGate:
        """For a hook, which is not run again: it waits in place, or is refused as Telegram would."""
        return RunGate(self.gate, self.waiting.beside())


class Passage:
    """One call's way through the gate: ask until it is not held, send, and tell what Telegram said of it."""

    def __init__(self, run: RunGate, call: Prepared, ask: Ask) -> None:
        self._run = run
        self._gate = run.gate
        self._call = call
        self._ask = ask
        self._scope = scope_of(call.method, call.chat)
        self._keys = keys_of(run.gate.bot_id, self._scope)
        self._patience_s = run.gate.patience_s
        self._waited_s = 0.0  # since Redis heard of it
        self.has_slot = False
        self._only_looked = False
        self._some_refused = False

    def questions(self) -> Sequence[PipelinedCommand]:
        """What is to be asked, along with whatever else is asked before a call; the answers are for `held`."""
        apart = self._gate.rates.apart(self._call.chat)
        self._only_looked = self._run.replays and self._call.messages > 0
        command = ASK.command(
            asked_of(self._keys, self._call.method),
            cost=0 if self.has_slot or self._only_looked else self._call.messages,
            patience_us=max(0, round(self._patience_s * 1_000_000)),
            bot_us=apart.bot_us,
            slack_us=apart.slack_us,
            chat_us=apart.chat_us,
            group_us=apart.group_us,
            burst=BURST,
            waited_ms=round(self._waited_s * 1000),
        )
        self._waited_s = 0.0
        return [PipelinedCommand(ASK, command)]

    def held(self, answers: Sequence[Any]) -> GateAnswer | None:
        """None: the call may be sent now. Else it has to `wait` and ask again."""
        [answer] = answers
        if isinstance(answer, Exception):
            raise RedisAway(f"Redis refuses to say whether {self._call.method} may be sent: {answer}") from answer
        found = read(answer)
        self._some_refused = found.some_refused
        if not found.goes:
            return found
        self._run.replays = False
        if self._only_looked and not self.has_slot and self._gate.rates.are_set:
            return self.held(self._ask(*self.questions()))
        return None

    def replayed(self) -> None:
        """The call was made by an earlier run: it is not sent."""
        self._run.replays = True

    def wait(self, answer: GateAnswer) -> None:
        """Returns when it is worth asking again. Raises ParkUpdate, TooManyRequests, LeaseLost."""
        self.has_slot = False
        waiting, reason = self._run.waiting, self._reason(answer)
        chosen = how(answer, patience_s=self._patience_s, left_s=waiting.left_s(), parks=waiting.parks)
        if chosen is How.REFUSED:
            raise TooManyRequests(self._call.method, self._call.chat, reason, 429, answer.wait_s)
        if chosen is How.PARKED:
            waiting.park(reason, answer.wait_s, together=answer.what is What.BOT)
        if answer.is_pause:
            waiting.log(f"flood wait: {reason}")
        traces.here().event("flood wait", reason=reason, wait_s=answer.wait_s)
        self._patience_s -= answer.wait_s
        waiting.here(reason, answer.wait_s)
        self._waited_s += answer.wait_s
        self.has_slot = answer.what is What.SLOT

    def refused(self, error: TooManyRequests) -> GateAnswer:
        """Telegram said 429: tells all workers. What this call has to wait for."""
        wait_s = max(error.retry_after, SHORTEST_S)
        command = REFUSED.command(refused_of(self._keys), scope=self._scope, wait_ms=math.ceil(wait_s * 1000))
        [is_bot] = self._ask(PipelinedCommand(REFUSED, command))
        if isinstance(is_bot, Exception):
            raise RedisAway(f"Redis refuses to note a 429: {is_bot}") from is_bot
        what = What.BOT if is_bot else What.PAUSE
        traces.here().event("refused with 429", retry_after_s=error.retry_after)
        self._run.waiting.log(f"{error}; every worker heeds it: {self._who(what)} waits {wait_s:g} s")
        return GateAnswer(what, wait_s, 0, some_refused=True)

    def accepted(self) -> None:
        """Telegram took the call. Costs nothing when nobody was refused."""
        if self._some_refused:
            with suppress(RedisError):  # nothing is wrong with the call
                self._ask(PipelinedCommand(ACCEPTED, ACCEPTED.command([self._keys.refused])))

    def _who(self, what: What) -> str:
        if what is What.BOT:
            return "the bot"
        return self._call.method if self._call.chat is None else f"chat {self._call.chat}"

    def _reason(self, answer: GateAnswer) -> str:
        who = {
            What.RATE: f"chat {self._call.chat} (RATE_PER_CHAT, RATE_PER_GROUP)",
            What.SLOT: "the bot (RATE_PER_BOT)",
            What.BUSY: "the bot (RATE_PER_BOT)",
        }.get(answer.what, self._who(answer.what))
        return f"{who} waits {answer.wait_s:.1f} s before {self._call.method}"
