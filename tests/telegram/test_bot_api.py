"""chatlanes knows the whole Bot API of bot_api.json: every kind of update, every method and every parameter.

If the installed aiogram knows a newer Bot API, the first test names each addition. Then `make bot-api` writes the file
anew, and the other tests fail for what chatlanes does not handle yet.
"""

import inspect
import json
from contextlib import suppress
from typing import Any

import pytest

from chatlanes.bot.adapters.collected import CAPTIONED
from chatlanes.bot.context import Context
from chatlanes.demo import echo
from chatlanes.telegram import client
from chatlanes.telegram.flood.keys import URGENT
from chatlanes.telegram.methods import METHODS, VERSION, check_method
from chatlanes.updates import collecting, routing
from chatlanes.updates.parsing import KINDS, LIFE_S, kind_of
from chatlanes.updates.routing import EXPRESS_KINDS, keys_of
from chatlanes_sandbox.page import views
from chatlanes_sandbox.simulator.calls.chats import Chats
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.params import RefusedError
from chatlanes_sandbox.simulator.examples import examples
from tests.telegram.source import (
    FILE,
    RESULTS_FILE,
    Description,
    changes,
    installed,
    models,
    recorded,
    smallest_results,
    text_of,
)

BOT_API = recorded()
GROUP, ANN = -100, 7


def names(fields: list[str]) -> list[str]:
    return [field.removesuffix("?") for field in fields]


# -- the source


def test_the_newest_source_adds_nothing() -> None:
    found = installed()
    assert changes(BOT_API, found) == []
    assert FILE.read_text() == text_of(found), "the order or the version has changed: make bot-api"


def test_the_simulator_returns_what_each_method_promises() -> None:
    """aiogram reads each result. Methods without an effect here return the smallest one."""
    from pydantic import TypeAdapter

    assert json.loads(RESULTS_FILE.read_text()) == smallest_results(), "make bot-api"
    chats = Chats({"id": 1, "is_bot": True, "first_name": "Simulated"}, FileStore())
    for name, model in models().items():
        if name in ("getMe", "getUpdates", "getWebhookInfo"):  # of the bot, not of its chats
            continue
        with suppress(RefusedError):
            TypeAdapter(model.__returning__).validate_python(chats.call(name, {"chat_id": "7", "text": "hello"}))


def test_additions_of_a_newer_source_are_named() -> None:
    # Given a source that has what the file lacks, and lacks what it has
    known = Description(
        "10.3", {"message": "Message"}, {"Message": ["chat", "text?"]}, {"getMe": [], "sendDice": ["chat_id", "emoji?"]}
    )
    newer = Description(
        "10.4",
        {"message": "Message", "call": "Call"},
        {"Message": ["chat", "text?", "mood?"], "Call": ["chat"]},
        {"ring": ["chat_id", "tone?"], "sendDice": ["chat_id", "emoji", "sides?"]},
    )
    # Then each is named, and nothing else
    assert changes(known, newer) == [
        "new: kind of update call: Call",
        "gone: method getMe",
        "new: method ring: ['chat_id', 'tone?']",
        "new: parameter sendDice.emoji",
        "gone: parameter sendDice.emoji?",
        "new: parameter sendDice.sides?",
        "new: field Message.mood?",
    ]


@pytest.mark.parametrize(
    ("table", "key", "named"),
    [
        (
            "updates",
            "stopped_message_generation",
            "kind of update stopped_message_generation: MessageGenerationStopped",
        ),
        ("methods", "close", "method close: []"),
    ],
)
def test_what_the_file_lacks_of_the_installed_source_is_named(table: str, key: str, named: str) -> None:
    found = installed()
    older = {name: value for name, value in getattr(found, table).items() if name != key}
    assert changes(found._replace(**{table: older}), found) == [f"new: {named}"]


# -- kinds of updates

EXAMPLES = examples(GROUP, ANN)


def test_every_kind_is_known_and_has_an_example() -> None:
    assert BOT_API.updates.keys() == KINDS
    assert EXAMPLES.keys() >= KINDS


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_telegram_sends(name: str) -> None:
    from aiogram.types import Update  # takes seconds

    [(kind, body)] = EXAMPLES[name].items()
    fields = BOT_API.types[BOT_API.updates[kind]]
    assert {field for field in fields if not field.endswith("?")} <= body.keys() <= set(names(fields))
    Update.model_validate({"update_id": 1, kind: body})


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_has_a_kind_and_a_lane(name: str) -> None:
    update = {"update_id": 1, **EXAMPLES[name]}
    [(kind, body)] = EXAMPLES[name].items()
    # Then its lane is that of its chat, otherwise of the private chat with its user, otherwise of its poll
    chat = body.get("chat") or body.get("message", {}).get("chat") or body.get("from") or body.get("user")
    expected = f"chat:{chat['id']}" if chat else "poll:poll"
    if "business_connection_id" in body:
        expected = f"business:{body['business_connection_id']}:{ANN}"
    if kind == "guest_message":
        expected = f"guest:{GROUP}"
    assert (kind_of(update), keys_of(update)) == (kind, [expected])
    # And each order has a lane for it
    assert all(keys_of(update, order_by) for order_by in ("chat+user", "topic", "user", "bot"))


@pytest.mark.parametrize(
    ("table", "of"),
    [
        (LIFE_S, "updates"),
        (EXPRESS_KINDS, "updates"),
        (routing.NEW_MESSAGES, "updates"),
        (collecting.CONTENT | routing.PAID, "Message"),
        (CAPTIONED, "Message"),
        (echo.CONTENT, "Message"),
        (views.KINDS, "Message"),
        (URGENT, "methods"),
        (client.TRANSIENT, "methods"),
        (client._MESSAGE_LISTS, "methods"),
        (client._NO_MESSAGE, "methods"),
    ],
)
def test_tables_name_only_what_exists(table: Any, of: str) -> None:
    known = BOT_API.types.get(of) or getattr(BOT_API, of)
    assert set(table) <= {name.lower() if of == "methods" else name for name in names(list(known))}


# -- methods


class Recorder:
    """Stands in for the Bot API; `made` has the last call."""

    def call(self, method: str, /, **params: Any) -> Any:
        client.prepare(method, params)
        self.made = method, params


def filled(method: str) -> dict[str, str]:
    return {name: f"a {name}" for name in names(BOT_API.methods[method])}


def test_every_method_is_known() -> None:
    assert BOT_API.version == VERSION
    assert set(BOT_API.methods) <= set(METHODS.values())
    for method in BOT_API.methods:
        check_method(method)


@pytest.mark.parametrize("method", BOT_API.methods)
def test_every_method_can_be_called_with_every_parameter(method: str) -> None:
    ctx, params = Context({"update_id": 1}, api := Recorder()), filled(method)  # type: ignore[arg-type]
    ctx.call(method, **params)
    assert api.made == (method, params)


#: Shorthand -> its positional arguments, and the method that it calls.
SHORTHANDS = {
    "reply": (["text"], "sendMessage"),
    "reply_photo": (["photo"], "sendPhoto"),
    "reply_document": (["document"], "sendDocument"),
    "reply_video": (["video"], "sendVideo"),
    "reply_animation": (["animation"], "sendAnimation"),
    "reply_audio": (["audio"], "sendAudio"),
    "reply_voice": (["voice"], "sendVoice"),
    "reply_sticker": (["sticker"], "sendSticker"),
    "reply_album": (["media"], "sendMediaGroup"),
    "reply_location": (["latitude", "longitude"], "sendLocation"),
    "reply_rich": (["rich_message"], "sendRichMessage"),
    "typing": (["action"], "sendChatAction"),
    "edit": (["text"], "editMessageText"),
    "edit_rich": (["rich_message"], "editMessageText"),
    "edit_caption": (["caption"], "editMessageCaption"),
    "edit_markup": (["reply_markup"], "editMessageReplyMarkup"),
    "react": (["reaction"], "setMessageReaction"),
    "pin": ([], "pinChatMessage"),
    "copy_to": (["chat_id"], "copyMessage"),
    "forward_to": (["chat_id"], "forwardMessage"),
    "answer_callback": (["text"], "answerCallbackQuery"),
    "answer_inline": (["results"], "answerInlineQuery"),
}


@pytest.mark.parametrize("shorthand", SHORTHANDS)
def test_a_shorthand_takes_every_other_parameter(shorthand: str) -> None:
    positional, method = SHORTHANDS[shorthand]
    name = {"answer_callback": "callback_query", "answer_inline": "inline_query"}.get(shorthand, "callback_query")
    ctx, params = Context({"update_id": 1, **EXAMPLES[name]}, api := Recorder()), filled(method)  # type: ignore[arg-type]
    given = [params.pop(name) for name in positional]
    getattr(ctx, shorthand)(*given, **params)
    made, sent = api.made
    assert (made, sent.keys()) == (method, set(names(BOT_API.methods[method])))
    assert sent.items() >= params.items()


def test_the_shorthands_are_all_here() -> None:
    takes_params = {
        name
        for name, each in inspect.getmembers(Context, inspect.isfunction)
        if name.startswith(("reply", "edit", "answer", "react", "pin", "copy", "forward", "typing"))
        and any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(each).parameters.values())
    }
    assert takes_params == SHORTHANDS.keys()


# -- what calls count for


def test_only_these_methods_are_repeated_freely() -> None:
    reads = {method for method in BOT_API.methods if client.is_read_only(method)}
    others = {method for method in reads if not method.startswith("get")}
    assert others == {"sendChatAction", "sendMessageDraft", "sendRichMessageDraft"}
    assert {method for method in BOT_API.methods if method.startswith("get")} - reads == {"getUpdates"}


def test_every_call_to_a_chat_counts_for_its_limits() -> None:
    uncounted = {
        method
        for method in BOT_API.methods
        if "chat_id" in filled(method) and not client.messages_of(method, {"chat_id": GROUP})
    }
    assert {method for method in uncounted if not method.startswith("get")} == {"sendChatAction"}
    assert all(
        client.messages_of(method, {"chat_id": GROUP, name: [1, 2, 3]}) == 3
        for method, name in client._MESSAGE_LISTS.items()
    )
