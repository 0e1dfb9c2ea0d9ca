"""An update that a framework cannot read fails with the name of the missing field, without its content."""

from __future__ import annotations

import traceback

import pytest

from chatlanes.bot.adapters.errors import UnreadableUpdateError
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.logs import Secrets
from chatlanes.logs.errors import traceback_of
from chatlanes.telegram.client import BotApi
from tests.support.bot_api import TOKEN

TEXT = "PRIVATE-words"


def test_aiogram_error_contains_no_message_text() -> None:
    api = BotApi("http://127.0.0.1:9", TOKEN)
    bot = load_bot("tests.bot.adapters.bots.quiet_dispatcher:dp", api=api)
    with pytest.raises(UnreadableUpdateError, match=r"message\.date: Field required") as caught:
        bot(Context({"update_id": 1, "message": {"message_id": 1, "text": TEXT}}, api))
    assert TEXT not in "".join(traceback.format_exception(caught.value))
    # And without the bot's own code among its frames, it is logged as one line
    at = caught.value.__traceback__
    while at is not None and not at.tb_frame.f_globals["__name__"].startswith("chatlanes."):
        at = at.tb_next
    shown = traceback_of(caught.value.with_traceback(at), Secrets())
    assert shown.startswith("chatlanes.bot.adapters.errors.UnreadableUpdateError: message.date: Field required")
