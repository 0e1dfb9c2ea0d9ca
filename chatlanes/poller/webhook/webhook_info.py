"""Formats the result of getWebhookInfo for people. Pure.

Guarantees a line for each problem, which says what to do.
"""

from datetime import UTC, datetime
from typing import Any

from chatlanes.logs.foreign_text import one_line

#: Two addresses fit.
LONGEST_ROW = 5_000


def describe_webhook(info: dict[str, Any], our_url: str | None) -> list[str]:
    """The lines for `info`, a result of getWebhookInfo."""
    return [f"{name}: {one_line(value, LONGEST_ROW)}" for name, value in _rows(info, our_url)]


def _rows(info: dict[str, Any], our_url: str | None) -> list[tuple[str, str]]:
    waiting = str(info.get("pending_update_count", 0))
    if not info.get("url"):
        return [
            ("webhook", "none; `chatlanes poller` gets the updates, `chatlanes webhook set` sets a webhook"),
            ("updates pending at Telegram", waiting),
        ]
    rows = [("webhook", str(info["url"]))]
    if our_url is not None and info["url"] != our_url:
        rows.append(("WEBHOOK_URL differs", f"{our_url} (`chatlanes webhook set` sets it at Telegram)"))
    rows.append(("updates pending at Telegram", waiting))
    rows.append(("concurrent requests", str(info.get("max_connections", 40))))
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
