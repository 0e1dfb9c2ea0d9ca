"""Session keys: the session of an update."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chatlanes.bot.session.keys import ORDERS_FOR, OURS, SessionKey, check_order, session_key_of
from chatlanes.updates.routing import ORDERS, keys_of


def message(chat: int, user: int | None = 9, **more: Any) -> dict[str, Any]:
    return {"update_id": 1, "message": {"chat": {"id": chat}, **({"from": {"id": user}} if user else {}), **more}}


TOPIC = message(-7, is_topic_message=True, message_thread_id=3)
AWAY, HERE = message(-7, migrate_to_chat_id=-1007), message(-1007, migrate_from_chat_id=-7)
QUERY = {"update_id": 1, "inline_query": {"id": "q", "from": {"id": 9}}}
POLL = {"update_id": 1, "poll": {"id": "p"}}
NOBODY = {"update_id": 1, "new_kind": {}}


@pytest.mark.parametrize(
    ("session", "update", "key", "moves_from"),
    [
        ("chat", message(-7), "chat:-7", None),
        ("chat", TOPIC, "chat:-7", None),
        ("chat", QUERY, "chat:9", None),
        ("chat", POLL, "poll:p", None),
        ("chat", NOBODY, None, None),
        ("chat", AWAY, "chat:-1007", "chat:-7"),
        ("chat", HERE, "chat:-1007", "chat:-7"),
        ("user", message(-7), "user:9", None),
        ("user", AWAY, "user:9", None),
        ("user", QUERY, "user:9", None),
        ("user", NOBODY, None, None),
        ("topic", TOPIC, "topic:-7:3", None),
        ("topic", message(-7), "chat:-7", None),
        ("topic", HERE, "chat:-1007", "chat:-7"),
        ("chat+user", message(-7), "chat:-7/user:9", None),
        ("chat+user", message(9), "chat:9/user:9", None),
        ("chat+user", POLL, "poll:p", None),
        ("chat+user", NOBODY, None, None),
        (lambda update: f"chat:{update['message']['chat']['id']}/cart", message(-7), "chat:-7/cart", None),
        (lambda update: None, message(-7), None, None),
    ],
)
def test_session_key(session: Any, update: dict[str, Any], key: str | None, moves_from: str | None) -> None:
    assert session_key_of(update, session) == SessionKey(key, moves_from)


@pytest.mark.parametrize("order_by", ORDERS)
@pytest.mark.parametrize("session", ["user", "chat+user", "topic"])
@pytest.mark.parametrize("update", [message(-7), TOPIC, message(9)], ids=["group", "topic", "private"])
def test_session_key_is_one_of_the_lane_keys(session: str, order_by: str, update: dict[str, Any]) -> None:
    if order_by not in ORDERS_FOR[session]:
        with pytest.raises(ValueError, match=f"does not work with ORDER_BY={re.escape(order_by)}"):
            check_order(session, order_by)
        return
    check_order(session, order_by)
    key = str(session_key_of(update, session).key)
    order = keys_of(update, order_by)
    assert order == ["bot"] or key in order or key.partition("/")[0] in order


def test_default_keys_and_functions_are_accepted() -> None:
    for order_by in (*ORDERS, "mybot:order"):
        check_order("chat", order_by)
        check_order(lambda _: None, order_by)
    for session in OURS:
        check_order(session, "mybot:order")
