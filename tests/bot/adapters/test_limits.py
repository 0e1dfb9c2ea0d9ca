"""USER_RATE and MAX_AGE with a bot of each framework."""

from __future__ import annotations

from tests.bot.adapters.test_collecting import texts
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_ages import appended, make_old
from tests.support.pipeline import message, one_chat_each

CELLS = [("dp", "threads"), ("application", "threads"), ("telebot", "prefork"), ("async_telebot", "prefork")]


def test_each_framework_knows_what_is_late_and_over_its_rate(make_pipeline: MakePipeline) -> None:
    # Given three messages of a user for each bot: two have waited for an hour, and the third is over the rate
    pipeline = make_pipeline(
        QUEUES=len(CELLS), USER_RATE="2/3600", USER_RATE_OVER="answer", MAX_AGE=600, MAX_AGE_ACTION="collect"
    )
    pipeline.poller()
    chats = one_chat_each(CELLS)
    make_old(pipeline, *appended(pipeline, *[message(0, chat, do=text) for text in ("one", "two") for chat in chats]))
    appended(pipeline, *[message(0, chat, do="three") for chat in chats])
    # When workers start
    pipeline.start_workers([(f"tests.bot.adapters.bots.limited:{bot}", pool, 2) for bot, pool in CELLS])
    pipeline.drained()
    # Then the late ones are one run, which knows it, and on_limited is called for the third
    assert [texts(pipeline, chat) for chat in chats] == [["one\ntwo, late", "slowly"]] * len(CELLS)
