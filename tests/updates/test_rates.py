"""USER_RATE: the rate of an update, counted once over all pollers and receivers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from celery_lanes.protocol import Rate
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.intake import rating_of
from chatlanes.updates.parsing import KINDS, parse
from chatlanes.updates.rates import OF_PEOPLE
from chatlanes.updates.routing import KeysError
from tests.settings.test_settings import TOKEN
from tests.updates.test_intake import BOT_ID, connected, message

HERE = "tests.updates.test_rates"
CHAT, GROUP = {"id": 7, "type": "private"}, {"id": -7, "type": "group"}
ANN = {"id": 9, "is_bot": False, "first_name": "Ann"}


def given(**settings: str) -> Settings:
    return load({"BOT_TOKEN": TOKEN, "USER_RATE": "20/60", **settings}, env_file=None)


def rate(update: dict[str, Any], **settings: str) -> Rate | None:
    rate_of = rating_of(given(**settings))
    assert rate_of is not None
    return rate_of(update, parse(update))


def key(kind: str, by: str = "user", **body: Any) -> str | None:
    found = rate({"update_id": 1, kind: body}, USER_RATE_BY=by)
    return found and found.key.partition("/")[2]


def by_language(update: dict[str, Any]) -> Any:
    return update["message"]["from"].get("language_code")


async def coroutine(update: dict[str, Any]) -> str:
    return "x"


def test_the_rate_of_a_message() -> None:
    update = {"update_id": 1, "message": {"chat": GROUP, "from": ANN, "text": "hi"}}
    assert rate(update) == Rate(f"{given().bot_id}/user:9", 20, 60_000, "drop")
    assert rate(update, USER_RATE="1/0.5", USER_RATE_OVER="delay", USER_RATE_BY="chat") == Rate(
        f"{given().bot_id}/chat:-7", 1, 500, "delay"
    )
    assert rate(update, USER_RATE_OVER="answer") == Rate(f"{given().bot_id}/user:9", 20, 60_000, "mark")


@pytest.mark.parametrize(
    ("kind", "body", "user", "chat"),
    [
        ("message", {"chat": CHAT, "from": ANN}, "user:9", "chat:7"),
        ("message", {"chat": GROUP, "from": ANN, "sender_chat": {"id": -8}}, "chat:-8", "chat:-7"),
        ("channel_post", {"chat": GROUP, "sender_chat": GROUP}, "chat:-7", "chat:-7"),
        ("business_message", {"chat": CHAT, "from": ANN, "business_connection_id": "b"}, "user:9", "business:b:7"),
        ("callback_query", {"from": ANN, "message": {"chat": GROUP}}, "user:9", "chat:-7"),
        ("inline_query", {"id": "1", "from": ANN}, "user:9", "chat:9"),
        ("message_reaction", {"chat": GROUP, "user": ANN}, "user:9", "chat:-7"),
        ("poll_answer", {"poll_id": "1", "user": ANN}, "user:9", "chat:9"),
    ],
)
def test_keys(kind: str, body: dict[str, Any], user: str, chat: str) -> None:
    assert (key(kind, **body), key(kind, "chat", **body)) == (user, chat)


@pytest.mark.parametrize("kind", sorted(KINDS - OF_PEOPLE))
def test_what_a_bot_must_know_is_not_limited(kind: str) -> None:
    assert key(kind, chat=CHAT, **{"from": ANN}) is None


@pytest.mark.parametrize("by", ["user", "chat", f"{HERE}:by_language"])
def test_payments_and_migrations_are_never_limited(by: str) -> None:
    ann = {**ANN, "language_code": "en"}
    assert key("message", by, chat=CHAT, text="hi", **{"from": ann}) is not None
    for more in ({"successful_payment": {}}, {"refunded_payment": {}}, {"migrate_to_chat_id": -100}):
        assert key("message", by, chat=CHAT, **{"from": ann}, **more) is None
    for kind in ("pre_checkout_query", "shipping_query"):
        assert key(kind, by, **{"from": ann}) is None


def test_updates_of_control_are_never_limited(redis_url: str) -> None:
    with connected(redis_url, USER_RATE="1/3600") as intake:
        texts = ["one", "two", "/stop", "/cancel@my_bot", "three"]
        appended = intake.append([message(n, text=text) for n, text in enumerate(texts)])
        assert (appended.added, appended.over_rate) == (3, 2)


def test_a_function_of_the_user_decides() -> None:
    by = f"{HERE}:by_language"
    assert key("message", by, chat=CHAT, **{"from": {**ANN, "language_code": "en"}}) == "en"
    assert key("message", by, chat=CHAT, **{"from": ANN}) is None
    with pytest.raises(KeysError, match=r"by_language \(USER_RATE_BY\) failed with KeyError"):
        key("callback_query", by, **{"from": ANN})
    for wrong in ("", "a\n", "é" * 101, 5):
        with pytest.raises(KeysError, match=r"must return None, or a key of 1 to 200 bytes"):
            key("message", by, chat=CHAT, **{"from": {**ANN, "language_code": wrong}})


def test_an_update_for_which_the_function_fails_is_buried(redis_url: str) -> None:
    with connected(redis_url, USER_RATE="1/3600", USER_RATE_BY=f"{HERE}:by_language") as intake:
        appended = intake.append([{"update_id": 1, "callback_query": {"from": ANN}}, message(2), message(3)])
    assert (appended.added, appended.buried, appended.over_rate) == (3, 1, 0)


def test_a_function_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ImportPathError, match="is an async function; name one that returns a key, or None"):
        rate({}, USER_RATE_BY=f"{HERE}:coroutine")
    with pytest.raises(ImportPathError, match=f"USER_RATE_BY={HERE}:nothing"):
        rate({}, USER_RATE_BY=f"{HERE}:nothing")


def test_the_settings() -> None:
    assert rating_of(load({"BOT_TOKEN": TOKEN}, env_file=None)) is None
    for wrong in ("20", "0/60", "20/0", "20/", "-1/60", "20/60s", "1.5/60", "20/nan"):
        with pytest.raises(SettingsError, match=r"USER_RATE=.*: allowed is updates/seconds, such as 20/60"):
            given(USER_RATE=wrong)
    with pytest.raises(SettingsError, match="USER_RATE_BY="):
        given(USER_RATE_BY="person")
    with pytest.raises(SettingsError, match="USER_RATE_OVER="):
        given(USER_RATE_OVER="ignore")


def test_all_receivers_count_together(redis_url: str) -> None:
    """Each update arrives at two receivers, at once."""
    updates = [message(n, chat) for n, chat in enumerate([7] * 100 + [8] * 100)]

    def receive(shift: int) -> tuple[int, int, int]:
        with connected(redis_url, USER_RATE="30/36000") as intake:
            results = [intake.append([each], hold_ms=1) for each in updates[shift:] + updates[:shift]]
        return tuple(sum(getattr(each, name) for each in results) for name in ("added", "over_rate", "seen"))  # type: ignore[return-value]

    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(receive, (0, 50))]
    assert tuple(map(sum, zip(*found, strict=True))) == (60, 140, 200)


def test_other_bots_count_for_themselves(redis_url: str) -> None:
    for bot in (BOT_ID, BOT_ID + 1):
        with connected(redis_url, USER_RATE="1/3600", BOT_TOKEN=f"{bot}:SECRET") as intake:
            appended = intake.append([message(1), message(2)])
            assert (appended.added, appended.over_rate) == (1, 1)
