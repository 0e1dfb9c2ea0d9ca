"""One call's way through the gate.

Promises that a call which is not held was neither paused nor over a limit at that moment, by Redis' clock, and that
whoever is held waits, is parked, or gets Telegram's refusal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from chatlanes import traces
from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.lanes.protocol.scripts import script
from chatlanes.telegram.client import Prepared
from chatlanes.telegram.errors import TooManyRequests
from chatlanes.telegram.flood.decisions import Answer, How, What, how, read
from chatlanes.telegram.flood.keys import asked_of, keys_of, refused_of, scope_of
from chatlanes.telegram.flood.rates import BURST

if TYPE_CHECKING:
    from chatlanes.telegram.flood.gate import RunGate

#: Asks Redis, and gives the answers.
Ask = Callable[..., list[Any]]

ASK, REFUSED, ACCEPTED = (script(name, "chatlanes.telegram.flood") for name in ("ask", "refused", "accepted"))

#: Telegram counts in seconds. A wait of nothing would be a loop.
SHORTEST_S = 1.0


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

    def held(self, answers: Sequence[Any]) -> Answer | None:
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

    def wait(self, answer: Answer) -> None:
        """Returns when it is worth asking again. Raises ParkUpdate, TooManyRequests, LeaseLost."""
        self.has_slot = False
        waiting, reason = self._run.waiting, self._reason(answer)
        chosen = how(answer, patience_s=self._patience_s, left_s=waiting.left_s(), parks=waiting.parks)
        if chosen is How.REFUSED:
            raise TooManyRequests(self._call.method, self._call.chat, reason, 429, answer.wait_s)
        if chosen is How.PARKED:
            waiting.park(reason, answer.wait_s, together=answer.what is What.BOT)
        if answer.is_pause:
            waiting.tell(f"flood wait: {reason}")
        traces.here().event("flood wait", reason=reason, wait_s=answer.wait_s)
        self._patience_s -= answer.wait_s
        waiting.here(reason, answer.wait_s)
        self._waited_s += answer.wait_s
        self.has_slot = answer.what is What.SLOT

    def refused(self, error: TooManyRequests) -> Answer:
        """Telegram said 429: tells all workers. What this call has to wait for."""
        wait_s = max(error.retry_after, SHORTEST_S)
        command = REFUSED.command(refused_of(self._keys), scope=self._scope, wait_ms=math.ceil(wait_s * 1000))
        [is_bot] = self._ask(PipelinedCommand(REFUSED, command))
        if isinstance(is_bot, Exception):
            raise RedisAway(f"Redis refuses to note a 429: {is_bot}") from is_bot
        what = What.BOT if is_bot else What.PAUSE
        traces.here().event("refused with 429", retry_after_s=error.retry_after)
        self._run.waiting.tell(f"{error}; every worker heeds it: {self._who(what)} waits {wait_s:g} s")
        return Answer(what, wait_s, 0, some_refused=True)

    def accepted(self) -> None:
        """Telegram took the call. Costs nothing when nobody was refused."""
        if self._some_refused:
            with suppress(RedisError):  # nothing is wrong with the call
                self._ask(PipelinedCommand(ACCEPTED, ACCEPTED.command([self._keys.refused])))

    def _who(self, what: What) -> str:
        if what is What.BOT:
            return "the bot"
        return self._call.method if self._call.chat is None else f"chat {self._call.chat}"

    def _reason(self, answer: Answer) -> str:
        who = {
            What.RATE: f"chat {self._call.chat} (RATE_PER_CHAT, RATE_PER_GROUP)",
            What.SLOT: "the bot (RATE_PER_BOT)",
            What.BUSY: "the bot (RATE_PER_BOT)",
        }.get(answer.what, self._who(answer.what))
        return f"{who} waits {answer.wait_s:.1f} s before {self._call.method}"
