"""An update that a framework cannot read fails with what is missing, not with what somebody wrote."""

from __future__ import annotations

import traceback

import pytest

from tasks.bot.adapters.errors import UnreadableUpdateError
from tasks.bot.client import BotApi
from tasks.bot.context import Context
from tasks.bot.loader import load_bot
from tests.poller.bot_api import TOKEN

TEXT = "PRIVATE-words"


def test_aiogram_tells_no_text() -> None:
    api = BotApi("http://127.0.0.1:9", TOKEN)
    bot = load_bot("tests.adapters.quiet_dispatcher:dp", api=api)
    with pytest.raises(UnreadableUpdateError, match=r"message\.date: Field required") as caught:
        bot(Context({"update_id": 1, "message": {"message_id": 1, "text": TEXT}}, api))
    assert TEXT not in "".join(traceback.format_exception(caught.value))
