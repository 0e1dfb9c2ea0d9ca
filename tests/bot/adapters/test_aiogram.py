"""The HTTP requests of aiogram's calls: they have the fields that aiogram itself sends."""

from __future__ import annotations

import traceback
from urllib.parse import parse_qsl

import pytest
import requests

from chatlanes.bot.adapters.errors import UnreadableUpdateError
from chatlanes.bot.context import Context
from chatlanes.bot.event_loop import event_loop
from chatlanes.bot.loader import load_bot
from chatlanes.logs import Secrets
from chatlanes.logs.errors import traceback_of
from chatlanes.telegram.client import BotApi, prepare
from tests.support.bot_api import TOKEN

#: Importing aiogram takes seconds, so the tests do it.
pytestmark = pytest.mark.slow


def test_calls_send_aiograms_fields() -> None:
    from aiogram import Bot
    from aiogram.client.default import DefaultBotProperties
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.methods import SendMessage, SetMyCommands, TelegramMethod
    from aiogram.types import BotCommand, InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters

    from chatlanes.bot.adapters.aiogram import BridgedSession

    button = InlineKeyboardButton(text="+", callback_data="a")
    methods: list[TelegramMethod[object]] = [
        SendMessage(chat_id=7, text="ä & [b]", reply_parameters=ReplyParameters(message_id=5)),
        SendMessage(
            chat_id=7,
            text="a button",
            disable_notification=True,
            reply_markup=InlineKeyboardMarkup(inline_keyboard=[[button]]),
        ),
        SetMyCommands(commands=[BotCommand(command="start", description="Begin")]),
    ]

    async def fields_and_params(method: TelegramMethod[object]) -> tuple[dict[str, str], dict[str, object]]:
        own = AiohttpSession()
        bot = Bot("1:none", own, default=DefaultBotProperties(parse_mode="HTML", allow_sending_without_reply=True))
        form = own.build_form_data(bot, method)
        fields = {field["name"]: value for field, _, value in form._fields}
        return fields, await BridgedSession(BotApi("http://127.0.0.1", "1:none"), own)._params(bot, method)

    for method in methods:
        fields, params = event_loop().run(fields_and_params(method))
        request = prepare(method.__api_method__, params).request
        with request.opened() as (headers, body):
            sent = requests.Request("POST", "http://127.0.0.1", headers=headers, data=body).prepare()
        assert sent.headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert dict(parse_qsl(sent.body)) == fields


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
