"""An update that a framework cannot read fails with the name of the missing field, without its content."""

from __future__ import annotations

import traceback

import pytest

from chatlanes.bot.adapters.errors import UnreadableUpdateError
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.telegram.client import BotApi
from tests.support.bot_api import TOKEN

TEXT = "PRIVATE-words"


def test_aiogram_error_contains_no_message_text() -> None:
    api = BotApi("http://127.0.0.1:9", TOKEN)
    bot = load_bot("tests.bot.adapters.bots.quiet_dispatcher:dp", api=api)
    with pytest.raises(UnreadableUpdateError, match=r"message\.date: Field required") as caught:
        bot(Context({"update_id": 1, "message": {"message_id": 1, "text": TEXT}}, api))
    assert TEXT not in "".join(traceback.format_exception(caught.value))
