"""Chats and messages as the page gets them: a rich message as text with entities. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chatlanes_sandbox.page.history import Chat, ChatMessage, User
from chatlanes_sandbox.page.progress import ProgressTable, UpdateProgress
from chatlanes_sandbox.simulator.calls.markup import Marked

#: The kinds of content. A message has the first one that is present: an animation is also a document.
KINDS = (
    *("text", "photo", "animation", "document", "audio", "voice", "video", "video_note", "sticker", "dice", "poll"),
    *("venue", "location", "contact", "game", "invoice", "paid_media", "checklist", "live_photo", "rich_message"),
)
#: Kinds that are one file.
FILES = ("animation", "document", "audio", "voice", "video", "video_note", "sticker", "live_photo")


def chat_shown(chat: Chat, users: Mapping[int, User]) -> dict[str, Any]:
    members = [users[user_id] for user_id in chat.users]
    return {"id": chat.id, "type": chat.type, "title": chat.title, "users": members}


def message_shown(said: ChatMessage, progress_table: ProgressTable) -> dict[str, Any]:
    raw = said.raw
    kind = kind_of(raw)
    own = progress_table.run_of(said.update_ids[-1]) if said.update_ids else None
    reply_to = raw.get("reply_to_message")
    return {
        "chat_id": said.chat_id,
        "message_id": said.message_id,
        "user": said.user,
        "date_s": raw["date"],
        "kind": kind,
        "text": text_of(raw, kind),
        "entities": entities_of(raw, kind),
        "seen_by": _only_reader(raw),
        "photo": url_of(raw["photo"][-1]["file_id"]) if kind == "photo" else None,
        "file": _file(raw[kind]) if kind in FILES else None,
        "media_group_id": raw.get("media_group_id"),
        "buttons": _buttons(raw),
        "keyboard": said.keyboard,
        "reply_to": reply_to["message_id"] if reply_to else None,
        "edited": said.edited,
        "deleted": said.deleted,
        "reactions": said.reactions,
        "presses": [press | _progress(progress_table.run_of(press["update_id"])) for press in said.presses],
        "update_id": said.update_id,
        "update_ids": said.update_ids,
        "group": own.group if own else [],
        **_progress(own),
    }


def kind_of(raw: Mapping[str, Any]) -> str:
    return next((kind for kind in KINDS if kind in raw), "service")


def text_of(raw: Mapping[str, Any], kind: str) -> str:
    """The text, or a short description of other content."""
    content = raw.get(kind)
    match kind, content:
        case "text", str(text):
            return text
        case "dice", {"emoji": emoji, "value": value}:
            return f"{emoji} {value}"
        case "poll", {"question": question, "options": options}:
            return "\n".join([question, *(f"○ {option['text']}" for option in options)])
        case "venue", {"title": title, "address": address}:
            return f"{title}, {address}"
        case "location", {"latitude": latitude, "longitude": longitude}:
            return f"{latitude}, {longitude}"
        case "contact", {"first_name": name, "phone_number": number}:
            return f"{name}, {number}"
        case "rich_message", _:
            return flat(content).text
        case (("invoice" | "game" | "checklist"), _):
            return _structured(content)
        case "service", _:
            return _service(raw)
    return str(raw.get("caption", ""))


def entities_of(raw: Mapping[str, Any], kind: str) -> list[dict[str, Any]] | None:
    if kind == "rich_message":
        return flat(raw[kind]).entities
    return raw.get("entities") or raw.get("caption_entities")


def _only_reader(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The user who sees an ephemeral message; None: everybody sees it."""
    if "ephemeral_message_id" not in raw:
        return None
    user = raw.get("receiver_user") or raw["from"]
    return {"id": user["id"], "first_name": user["first_name"]}


def _structured(content: Any) -> str:
    """The title and the items of structured content."""
    lines = [content.get("title"), *(item.get("text", "") for item in content.get("tasks", ()))]
    return "\n".join(str(line) for line in lines if line)


def _service(raw: Mapping[str, Any]) -> str:
    if joined := raw.get("new_chat_members"):
        return f"{', '.join(user['first_name'] for user in joined)} joined"
    return ""


def _file(content: Mapping[str, Any]) -> dict[str, Any]:
    name = content.get("file_name") or content.get("title") or content.get("emoji") or content["file_id"]
    return {"name": name, "url": url_of(content["file_id"])}


def url_of(file_id: str) -> str:
    return f"/page/files/{file_id}"


def _buttons(raw: Mapping[str, Any]) -> list[list[dict[str, Any]]] | None:
    rows = raw.get("reply_markup", {}).get("inline_keyboard")
    return rows and [
        [{"text": each.get("text", ""), "data": each.get("callback_data"), "url": each.get("url")} for each in row]
        for row in rows
    ]


def _progress(progress: UpdateProgress | None) -> dict[str, Any]:
    if progress is None:
        return {"state": None, "stopped": False, "attempt": 0, "waited_s": None, "took_s": None, "error": None}
    return {
        "state": progress.state,
        "stopped": progress.is_stopped,
        "attempt": progress.attempt,
        "waited_s": progress.waited_s,
        "took_s": progress.took_s,
        "error": progress.error,
    }


# ── rich messages. Blocks without text show their type ──

#: Types of RichText that are entities of the same look.
_ENTITIES = {
    **{name: name for name in ("bold", "italic", "underline", "strikethrough", "spoiler", "code", "text_mention")},
    **{name: name for name in ("mention", "hashtag", "cashtag", "bot_command")},
    "marked": "bold",
    "email_address": "email",
    "phone_number": "mention",
}
#: Blocks whose whole text has a look.
_BLOCKS = {
    "heading": "bold",
    "pre": "pre",
    "footer": "italic",
    "thinking": "italic",
    "blockquote": "blockquote",
    "expandable_blockquote": "blockquote",
    "pullquote": "blockquote",
}


def flat(rich_message: Any) -> Marked:
    """The text of all blocks, one line or more for each."""
    made = Marked()
    _write_blocks(made, rich_message.get("blocks") if isinstance(rich_message, dict) else None)
    return made


def _write_blocks(made: Marked, blocks: Any) -> None:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            if made.text and not made.text.endswith("\n"):
                made.write("\n")
            _write_block(made, block)


def _write_block(made: Marked, block: dict[str, Any]) -> None:
    kind, start = str(block.get("type")), made.units
    match kind:
        case "list":
            _write_items(made, block.get("items"))
        case "table":
            _write_rows(made, block.get("cells"))
        case "buttons":
            made.write(" ".join(f"[{flat_text(each.get('text'))}]" for each in block.get("buttons", ())))
        case "divider":
            made.write("———")
        case "mathematical_expression":
            made.write(str(block.get("expression", "")))
            made.mark(start, "code")
        case _:
            _write(made, block.get("summary"))
            _write(made, block.get("text"))
            _write_blocks(made, block.get("blocks"))
            caption = block.get("caption")
            _write(made, caption.get("text") if isinstance(caption, dict) else caption)
    if kind in _BLOCKS:
        made.mark(start, _BLOCKS[kind])
    if made.units == start and kind != "anchor":
        made.write(f"({kind.replace('_', ' ')})")


def _write_items(made: Marked, items: Any) -> None:
    for place, item in enumerate(items if isinstance(items, list) else ()):
        box = {True: "☑ ", False: "☐ "}[bool(item.get("is_checked"))] if item.get("has_checkbox") else ""
        inside = Marked()
        _write_blocks(inside, item.get("blocks"))
        made.write("\n" * (place > 0) + (box or f"{item.get('label') or '•'} "))
        _append(made, inside)


def _write_rows(made: Marked, rows: Any) -> None:
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        made.write("\n" * (place > 0))
        for at, cell in enumerate(row):
            made.write(" | " * (at > 0))
            start = made.units
            _write(made, cell.get("text"))
            if cell.get("is_header"):
                made.mark(start, "bold")


def _append(made: Marked, inside: Marked) -> None:
    made.entities += [{**each, "offset": each["offset"] + made.units} for each in inside.entities]
    made.write(inside.text)


def _write(made: Marked, text: Any) -> None:
    """A RichText: a string, a list, or an object around another."""
    if isinstance(text, str):
        made.write(text)
    elif isinstance(text, list):
        for part in text:
            _write(made, part)
    elif isinstance(text, dict):
        kind, start = str(text.get("type")), made.units
        _write(made, text.get("text") or text.get("alternative_text") or text.get("expression"))
        if kind == "url":
            made.mark(start, "text_link", url=str(text.get("url", "")))
        elif kind in _ENTITIES:
            made.mark(start, _ENTITIES[kind])


def flat_text(text: Any) -> str:
    made = Marked()
    _write(made, text)
    return made.text
