"""The gate that every call of a bot passes before it is sent.

Promises that a call which passed was neither paused nor over a limit at that moment, by Redis' clock, and that whoever
may not pass waits, is parked, or gets Telegram's refusal. Asks Redis nothing by itself: its question travels with
whatever else is asked before a call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from redis import Redis

from tasks.bot.client import Prepared
from tasks.bot.errors import TooManyRequests
from tasks.bot.flood.answers import Answer, How, What, how, read
from tasks.bot.flood.keys import Keys, keys_of, scope_of
from tasks.bot.flood.rates import BURST, Rates
from tasks.bot.flood.waiting import Waiting
from tasks.lanes.scripts import Argument, Script, script

PACKAGE = "tasks.bot.flood"

#: Telegram counts in seconds. A wait of nothing would be a loop.
SHORTEST_S = 1.0


@dataclass(frozen=True)
class Gate:
    """Of one bot. `patience_s`: the longest wait in place (FLOOD_WAIT)."""

    bot_id: str
    rates: Rates = field(default_factory=Rates)
    patience_s: float = 5.0


@dataclass(frozen=True)
class RunGate:
    """A bot's gate for one run of its handler."""

    gate: Gate
    waiting: Waiting

    def passage(self, call: Prepared) -> Passage:
        """Raises ParkUpdate when the run is to end."""
        self.waiting.check()
        return Passage(self.gate, self.waiting, call)

    def beside(self) -> RunGate:
        """For a hook, which is not run again: it waits in place, or is refused as Telegram would."""
        return replace(self, waiting=self.waiting.beside())


class Passage:
    """One call's way through the gate: ask until the answer goes, send, and tell what Telegram said of it."""

    script: Script = script("ask", PACKAGE)

    def __init__(self, gate: Gate, waiting: Waiting, call: Prepared) -> None:
        self._gate = gate
        self._waiting = waiting
        self._call = call
        self._scope = scope_of(call.method, call.chat)
        self._patience_s = gate.patience_s
        self._has_slot = False
        self._some_refused = False

    def question(self) -> list[Argument]:
        """A command of `script`."""
        apart = self._gate.rates.apart(self._call.chat)
        return self.script.command(
            self._keys,
            cost=0 if self._has_slot else self._call.messages,
            patience_us=max(0, round(self._patience_s * 1_000_000)),
            bot_us=apart.bot_us,
            slack_us=apart.slack_us,
            chat_us=apart.chat_us,
            group_us=apart.group_us,
            burst=BURST,
        )

    def held(self, answer: list[Any]) -> Answer | None:
        """None: the call may be sent now. Else it has to `wait` and ask again."""
        found = read(answer)
        self._some_refused = found.some_refused
        return None if found.goes else found

    def wait(self, answer: Answer) -> None:
        """Returns when it is worth asking again. Raises ParkUpdate, TooManyRequests, LeaseLost."""
        self._has_slot = False
        chosen = how(answer, patience_s=self._patience_s, left_s=self._waiting.left_s(), parks=self._waiting.parks)
        reason = self._reason(answer)
        if chosen is How.REFUSED:
            raise TooManyRequests(self._call.method, self._call.chat, reason, 429, answer.wait_s)
        if chosen is How.PARKED:
            self._waiting.park(reason, answer.wait_s, together=answer.what is What.BOT)
        self._patience_s -= answer.wait_s
        self._waiting.here(reason, answer.wait_s)
        self._has_slot = answer.what is What.SLOT

    def refused(self, client: Redis, error: TooManyRequests) -> Answer:
        """Telegram said 429: tells all workers. What this call has to wait for."""
        verb = script("refused", PACKAGE)
        wait_s = max(error.retry_after, SHORTEST_S)
        command = verb.command(self._keys[:3], scope=self._scope, wait_ms=math.ceil(wait_s * 1000))
        what = What.BOT if verb.run(client, command) else What.PAUSE
        self._waiting.tell(f"{error}; every worker heeds it: {self._who(what)} waits {wait_s:g} s")
        return Answer(what, wait_s, 0, some_refused=True)

    def accepted(self, client: Redis) -> None:
        """Telegram took the call: what it refused others was about their chats. Costs nothing when nobody was."""
        if self._some_refused:
            client.delete(self._keys.refused)

    @property
    def _keys(self) -> Keys:
        return keys_of(self._gate.bot_id, self._scope)

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
