"""Examples of ORDER_BY functions."""

from typing import Any


def by_thread(update: dict[str, Any]) -> list[str]:
    chat = update["message"]["chat"]["id"]
    if chat == 666:
        raise LookupError(f"no thread for {chat}")
    return [f"thread:{chat}"]


def not_keys(update: dict[str, Any]) -> Any:
    return update["update_id"]
