"""getWebhookInfo's result as lines for people. Pure.

Guarantees a line for each thing that is wrong, with what to do.
"""

from datetime import UTC, datetime
from typing import Any

from chatlanes.logs.foreign_text import one_line


def describe_webhook(info: dict[str, Any], our_url: str | None) -> list[str]:
    """`info` is getWebhookInfo's result."""
    return [f"{name}: {value}" for name, value in _rows(info, our_url)]


def _rows(info: dict[str, Any], our_url: str | None) -> list[tuple[str, str]]:
    waiting = str(info.get("pending_update_count", 0))
    if not info.get("url"):
        return [
            ("webhook", "none is set; `chatlanes poller` gets the updates, `chatlanes webhook set` sets one"),
            ("updates that wait at Telegram", waiting),
        ]
    rows = [("webhook", str(info["url"]))]
    if our_url is not None and info["url"] != our_url:
        rows.append(("but WEBHOOK_URL is", f"{our_url} (`chatlanes webhook set` tells Telegram)"))
    rows.append(("updates that wait at Telegram", waiting))
    rows.append(("requests at a time", str(info.get("max_connections", 40))))
    kinds = info.get("allowed_updates")
    rows.append(
        ("kinds of update", ", ".join(map(str, kinds)) if kinds and type(kinds) is list else "Telegram's default")
    )
    if info.get("last_error_message"):
        rows.append(("last failure", f"{one_line(info['last_error_message'])}, {_when(info.get('last_error_date'))}"))
    return rows


def _when(seconds: Any) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"
