"""A broadcast reaches each recipient once, in the lanes of the chats, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from chatlanes.broadcasts import Broadcasts, Call, Feeder, Progress
from chatlanes.lanes.protocol.store import Store
from chatlanes.settings import Settings
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, TOKEN, Pipeline, message
from tests.support.waiting import until

SAYS_HI = Call("sendMessage", {"text": "hi"})


class Broadcast:
    """One broadcast of the pipeline's bot."""

    id = "b1"

    def __init__(self, pipeline: Pipeline, chats: Iterable[int], call: Call = SAYS_HI, rate: float = 100.0) -> None:
        self.pipeline = pipeline
        self.chats = list(chats)
        self.feeder = Feeder(Store(pipeline.redis), Settings(bot_token=TOKEN))
        self.broadcasts: Broadcasts = self.feeder.broadcasts
        self.broadcasts.store(self.id, call, self.chats, rate)
        self.feeder.start(self.id)

    @property
    def now(self) -> Progress:
        return self.broadcasts.progress(self.id)

    def reached(self) -> Counter[int]:
        """How many calls arrived for each chat, also those whose answer was lost."""
        calls = self.pipeline.simulator.calls("sendMessage")
        return Counter(call["params"]["chat_id"] for call in calls if call["ok"] and call["params"]["text"] == "hi")

    def ended(self, state: str = "done") -> Progress:
        until(lambda: self.now.ended_ms > 0)
        assert self.now.state == state
        return self.now

    def some(self, count: int) -> None:
        until(lambda: self.now.done >= count)

    def check(self) -> None:
        """Each recipient got the message once, or is listed as uncertain."""
        missed = {chat: reason for chat, reason, _ in self.broadcasts.missed(self.id)}
        reached = self.reached()
        assert max(reached.values()) == 1
        assert {chat for chat in self.chats if reached[chat] == 0} <= set(missed)
        assert set(missed.values()) <= {"uncertain"}
        assert self.now.counts.get("uncertain", 0) == len(missed)
        assert self.now.counts["sent"] == len(self.chats) - len(missed)


def test_every_recipient_is_reached_and_refusals_are_listed(make_pipeline: MakePipeline) -> None:
    # Given a bot with a hook, and chats that refuse it for different reasons
    pipeline = make_pipeline(BOT="tests.support.bots:broadcasting")
    refusals = {
        11: (403, "Forbidden: bot was blocked by the user", "blocked"),
        12: (403, "Forbidden: user is deactivated", "deactivated"),
        13: (400, "Bad Request: chat not found", "never started"),
        14: (403, "Forbidden: bot can't initiate conversation with a user", "never started"),
        15: (400, "Bad Request: not enough rights to send text messages to the chat", "refused"),
        16: (502, "Bad Gateway", "uncertain"),
    }
    for chat, (status, description, _) in refusals.items():
        pipeline.simulator.fault(chat_id=chat, status=status, description=description)
    pipeline.worker("threads", 4)
    # When a broadcast runs
    broadcast = Broadcast(pipeline, range(10, 60))
    now = broadcast.ended()
    # Then the others got the message once, and these are listed
    assert broadcast.reached() == Counter(set(broadcast.chats) - set(refusals))
    missed = {chat: reason for chat, reason, _ in broadcast.broadcasts.missed("b1")}
    assert missed == {chat: reason for chat, (*_, reason) in refusals.items()}
    assert now.counts == {"sent": 44} | dict(Counter(missed.values()))
    # And the hook ran for those that blocked the bot, with their sessions
    assert [pipeline.session(chat) for chat in (10, 11, 12, 13)] == [None, {"gone": True}, {"gone": True}, None]
    # And nothing is left but the results
    until(lambda: pipeline.pending() == 0)
    assert pipeline.leftovers() == []
    kept = sorted(key.decode().partition(":")[0] for key in pipeline.redis.scan_iter("broadcast*"))
    assert kept == ["broadcast", "broadcast-call", "broadcast-missed", "broadcasts"]
