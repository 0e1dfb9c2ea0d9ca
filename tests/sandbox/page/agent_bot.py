"""A bot for the tests of the page: it drafts its answer, which can be stopped, and answers a group's members alone."""

from __future__ import annotations

from typing import Any

BREAD = {"type": "paragraph", "text": ["bread, ", {"type": "bold", "text": "fresh"}]}
RICH = {
    "blocks": [
        {"type": "heading", "size": 1, "text": "Shopping"},
        {"type": "list", "items": [{"label": "•", "blocks": [BREAD]}]},
    ]
}


def handle(ctx: Any) -> None:
    if ctx.kind == "stopped_message_generation":
        ctx.reply(f"Stopped draft {ctx.update[ctx.kind]['draft_id']}.")
    elif ctx.kind == "callback_query":
        ctx.answer_callback()
        ctx.edit("Yes it is.")
    elif ctx.text == "/setup":
        commands = [{"command": "balance", "description": "Yours alone", "is_ephemeral": True}]
        ctx.call("setMyCommands", commands=commands, scope={"type": "all_group_chats"})
        ctx.reply("Ready.")
    elif ctx.text == "/balance":
        ask = {"inline_keyboard": [[{"text": "Is it so?", "callback_data": "yes"}]]}
        ctx.reply("You have 3.", reply_markup=ask, ephemeral_message_parameters={"receiver_user_id": ctx.user_id})
    elif ctx.text == "/rich":
        ctx.reply_rich(RICH)
    else:
        draft = {"chat_id": ctx.chat_id, "draft_id": 5}
        ctx.call("sendMessageDraft", **draft, text=f"Thinking about {ctx.text}", can_stop=True)
