"""The bot's calls that edit, delete or react to messages in a chat of the page.

Refused as by Telegram: messages that do not exist or are not the bot's, and edits that change nothing.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes.sandbox.page.chats.call_context import CallContext, ids_in
from chatlanes.sandbox.page.chats.history import Chat
from chatlanes.sandbox.simulator.calls.chats import NOT_MODIFIED
from chatlanes.sandbox.simulator.calls.content import changed
from chatlanes.sandbox.simulator.calls.params import Params, RefusedError, listed


def edit(context: CallContext, chat: Chat, method: str, params: Params) -> dict[str, Any]:
    said = context.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to edit not found")
    if not said.user["is_bot"]:
        raise RefusedError("Bad Request: message can't be edited")
    if method == "editMessageText" and "text" not in said.raw:
        raise RefusedError("Bad Request: there is no text in the message to edit")
    edited = changed(said.raw, method, params, context.files)
    if edited == said.raw:
        raise RefusedError(NOT_MODIFIED)
    said.edited = said.edited or method != "editMessageReplyMarkup"
    said.raw = {**edited, "edit_date": int(time.time())}
    return context.history.put(said).raw


def delete(context: CallContext, chat: Chat, params: Params) -> bool:
    said = context.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to delete not found")
    said.deleted = True
    context.history.put(said)
    return True


def delete_all(context: CallContext, chat: Chat, params: Params) -> bool:
    """Messages that do not exist are skipped."""
    for message_id in ids_in(params):
        said = context.history.message(chat.id, message_id)
        if said is not None:
            said.deleted = True
            context.history.put(said)
    return True


def react(context: CallContext, chat: Chat, params: Params) -> bool:
    said = context.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to react not found")
    said.reactions = [each.get("emoji", "★") for each in listed(params, "reaction") if isinstance(each, dict)]
    context.history.put(said)
    return True
