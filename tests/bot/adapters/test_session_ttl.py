"""With SESSION_TTL, what a framework keeps of one conversation expires together."""

import pytest

from chatlanes.bot.stored import SESSION
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import Pipeline, message

TTL_S = 600
#: The `conversation_timeout` of bots/forms.py, which imports frameworks.
TIMEOUT_S = 3600


def left_s(pipeline: Pipeline) -> dict[str, int]:
    return {key.decode(): pipeline.redis.ttl(key) for key in pipeline.redis.scan_iter(f"{SESSION}*")}


@pytest.mark.parametrize(("bot", "parts"), [("dp", 2), ("application", 3)])
def test_all_parts_of_a_conversation_are_renewed(make_pipeline: MakePipeline, bot: str, parts: int) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.forms:{bot}", SESSION_TTL=TTL_S)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="begin"), message(0, 7, do="item"))
    pipeline.drained()
    begun = left_s(pipeline)
    assert len(begun) == parts
    # When most of their time has passed, and a message changes a part of them
    for key in begun:
        pipeline.redis.expire(key, 60)
    pipeline.push(message(0, 7, do="item"))
    pipeline.drained()
    # Then all of them are kept as long as if they had changed
    left = left_s(pipeline)
    assert texts(pipeline, 7) == ["items 1", "items 2"]
    assert min(left.values()) > 60
    # And a conversation that a timer ends is kept until then
    assert [key for key, ttl_s in left.items() if ttl_s > TIMEOUT_S] == [key for key in left if "conversation" in key]
