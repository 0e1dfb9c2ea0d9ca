"""An example of every kind of update (Bot API 10.3), as Telegram sends it. Pure, except for the date.

Two more are messages: a rich one, and an ephemeral one, such as a member of a group sends with a command that only the
bot sees.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes_sandbox.simulator.calls.chats import chat_of, person

CHANNEL = chat_of({"chat_id": "@news"})
CONNECTION = "a business connection"
RICH = {
    "blocks": [
        {"type": "heading", "size": 1, "text": "Shopping"},
        {"type": "paragraph", "text": ["We need ", {"type": "bold", "text": "bread"}, "."]},
    ]
}


def examples(chat_id: int, user_id: int) -> dict[str, dict[str, Any]]:
    """Name -> update without an id: by this user in this chat, or in a channel where only channels have the kind."""
    now, chat, user = int(time.time()), chat_of({"chat_id": chat_id}), person(user_id)
    by_kind = {
        **_messages(now, chat, user),
        **_queries(now, chat, user),
        **_changes(now, chat, user),
        **_answers(now, chat, user),
    }
    head = {"from": user, "chat": chat, "date": now}
    rich = {"message": {"message_id": 9, **head, "rich_message": RICH}}
    hidden = {"message": {"message_id": 0, "ephemeral_message_id": 1, **head, "text": "/balance"}}
    return {kind: {kind: body} for kind, body in by_kind.items()} | {"rich_message": rich, "ephemeral_message": hidden}


def _messages(now: int, chat: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    written = {"message_id": 1, "from": user, "chat": chat, "date": now, "text": "hello"}
    post = {"message_id": 1, "sender_chat": CHANNEL, "chat": CHANNEL, "date": now, "text": "news"}
    private = {**written, "chat": chat_of({"chat_id": user["id"]}), "business_connection_id": CONNECTION}
    edit = {"edit_date": now, "text": "hello!"}
    gone = {"business_connection_id": CONNECTION, "chat": private["chat"], "message_ids": [1, 2]}
    return {
        "message": written,
        "edited_message": {**written, **edit},
        "channel_post": post,
        "edited_channel_post": {**post, **edit},
        "business_message": private,
        "edited_business_message": {**private, **edit},
        "deleted_business_messages": gone,
        "guest_message": {**written, "guest_query_id": "guest"},
    }


def _queries(now: int, chat: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    bot = {"id": 1, "is_bot": True, "first_name": "Bot"}
    question = {"message_id": 2, "from": bot, "chat": chat, "date": now, "text": "Well?"}
    address = {"country_code": "DE", "state": "", "city": "Bonn", "street_line1": "Am Markt 1", "street_line2": ""}
    paid = {"from": user, "invoice_payload": "order 7"}
    price = {"currency": "EUR", "total_amount": 1_000}
    asks = {"chat": chat, "from": user, "user_chat_id": user["id"], "date": now, "query_id": "join"}
    return {
        "inline_query": {"id": "inline", "from": user, "query": "cats", "offset": ""},
        "chosen_inline_result": {"result_id": "1", "from": user, "query": "cats", "inline_message_id": "inline"},
        "callback_query": {"id": "press", "from": user, "message": question, "chat_instance": "7", "data": "yes"},
        "shipping_query": {"id": "shipping", **paid, "shipping_address": {**address, "post_code": "53111"}},
        "pre_checkout_query": {"id": "checkout", **paid, **price},
        "chat_join_request": {**asks, "bio": "I like cats."},
    }


def _changes(now: int, chat: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    member = {"status": "member", "user": user}
    change = {"chat": chat, "from": user, "date": now}
    connection = {"id": CONNECTION, "user": user, "user_chat_id": user["id"], "date": now, "is_enabled": True}
    boost = {"boost_id": "boost", "source": {"source": "premium", "user": user}}
    dates = {"add_date": now, "expiration_date": now + 86_400}
    return {
        "business_connection": {**connection, "rights": {"can_reply": True}},
        "my_chat_member": {**change, "old_chat_member": member, "new_chat_member": {"status": "left", "user": user}},
        "chat_member": {**change, "old_chat_member": {"status": "left", "user": user}, "new_chat_member": member},
        "chat_boost": {"chat": chat, "boost": {**boost, **dates}},
        "removed_chat_boost": {"chat": chat, "remove_date": now, **boost},
        "managed_bot": {"user": user, "bot": {"id": 2, "is_bot": True, "first_name": "Child"}},
        "subscription": {"user": user, "invoice_payload": "a month of cats", "state": "canceled"},
        "stopped_message_generation": {"chat": chat_of({"chat_id": user["id"]}), "draft_id": 1},
    }


def _answers(now: int, chat: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    thumb = {"type": "emoji", "emoji": "👍"}
    options = [{"persistent_id": name, "text": name, "voter_count": votes} for name, votes in (("yes", 1), ("no", 0))]
    poll = {"id": "poll", "question": "Well?", "options": options, "total_voter_count": 1, "type": "regular"}
    settings = ("is_closed", "is_anonymous", "allows_multiple_answers", "allows_revoting", "members_only")
    reaction = {"chat": chat, "message_id": 2, "user": user, "date": now, "old_reaction": [], "new_reaction": [thumb]}
    counts = {"chat": CHANNEL, "message_id": 2, "date": now, "reactions": [{"type": thumb, "total_count": 3}]}
    return {
        "message_reaction": reaction,
        "message_reaction_count": counts,
        "poll": {**poll, **dict.fromkeys(settings, False)},
        "poll_answer": {"poll_id": "poll", "user": user, "option_ids": [0], "option_persistent_ids": ["yes"]},
        "purchased_paid_media": {"from": user, "paid_media_payload": "cat"},
    }
