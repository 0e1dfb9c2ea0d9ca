"""The groups of COLLECT: which updates are handed over together."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from hypothesis import given

from celery_lanes.protocol import Group
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates import KeysError, parse
from chatlanes.updates.collecting import grouping
from tests.updates.test_intake import settings_of
from tests.updates.test_routing import UPDATES

ANN, BOB = {"id": 7}, {"id": 8}
CHAT, GROUP = {"id": 7}, {"id": -100}


def group_of(update: Any, **given: object) -> Group | None:
    find = grouping(settings_of("redis://unused", **given))
    return find(update, parse(update)) if find else None


def name_of(update: Any, collect: str = "messages") -> str | None:
    group = group_of(update, COLLECT=collect)
    return None if group is None else group.name


def new(kind: str = "message", **body: Any) -> dict[str, Any]:
    return {"update_id": 1, kind: {"message_id": 1, "chat": GROUP, "from": ANN, **body}}


def photo(**more: Any) -> dict[str, Any]:
    return new(photo=[{"file_id": "p"}], **more)


def test_nothing_is_collected_by_default() -> None:
    assert grouping(settings_of("redis://unused")) is None


def test_a_group_has_the_limits_of_the_settings() -> None:
    given = {"COLLECT": "messages", "COLLECT_QUIET": 0.25, "COLLECT_MAX_WAIT": 2, "COLLECT_MAX": 9, "INTERRUPT": "on"}
    assert group_of(new(text="a"), **given) == Group("messages::-100::7", 250, 2000, 9, True)


@pytest.mark.parametrize(
    "same",
    [
        [new(text="a"), new(text="b"), photo(), photo(caption="c", media_group_id="1"), new(voice={"file_id": "v"})],
        # An album's parts belong together, whatever their captions.
        [photo(media_group_id="1"), photo(caption="/start", media_group_id="1")],
        [new("channel_post", text="a", **{"from": None}), new("channel_post", text="b", **{"from": None})],
        [new("business_message", text=text, business_connection_id="c") for text in "ab"],
        [new(text=text, message_thread_id=5, is_topic_message=True) for text in "ab"],
        [new(text="a"), new(rich_message={"blocks": [{"type": "paragraph", "text": "b"}]})],
        # The member of a reply chain outside of a forum has a message_thread_id too.
        [new(text="a", message_thread_id=5), new(text="b")],
        [new(text=text, sender_chat=GROUP, **{"from": {"id": 1087968824}}) for text in "ab"],
    ],
)
def test_messages_of_one_sender_are_one_group(same: list[dict[str, Any]]) -> None:
    names = {name_of(update) for update in same}
    assert len(names) == 1
    assert names != {None}


def test_other_senders_chats_and_topics_are_other_groups() -> None:
    others = [
        new(text="a"),
        new(text="a", **{"from": BOB}),
        new(text="a", chat=CHAT),
        new(text="a", message_thread_id=5, is_topic_message=True),
        new(text="a", sender_chat={"id": -200}),
        new("business_message", text="a", business_connection_id="c"),
        photo(media_group_id="7", chat={"id": -300}),
    ]
    names = [name_of(update) for update in others]
    assert None not in names
    assert len(set(names)) == len(others)


NEVER_A_MESSAGE = [
    new(text="/start"),
    photo(caption="/ask what is this"),
    new(rich_message={"blocks": [{"type": "paragraph", "text": ["/ask ", {"type": "bold", "text": "what"}]}]}),
    new("edited_message", text="a"),
    new("guest_message", text="a", guest_query_id="1"),
    new(new_chat_members=[BOB]),
    new(migrate_to_chat_id=-1001),
    new(successful_payment={"currency": "XTR"}),
    new(refunded_payment={"currency": "XTR"}),
    {"update_id": 1, "callback_query": {"id": "1", "from": ANN, "message": {"chat": GROUP, "text": "a"}}},
    {"update_id": 1, "pre_checkout_query": {"id": "1", "from": ANN}},
    {"update_id": 1},
    "no update",
]


@pytest.mark.parametrize("update", NEVER_A_MESSAGE)
def test_commands_payments_edits_and_service_messages_are_not_collected(update: Any) -> None:
    assert name_of(update) is None
    assert name_of(update, "albums") is None


@pytest.mark.parametrize("collect", ["messages", f"{__name__}:by_chat"])
def test_an_ephemeral_message_is_collected_with_its_like_only(collect: str) -> None:
    """An answer to one is ephemeral, and an answer to the others is not."""
    public, ephemeral = new(text="a"), new(text="a", message_id=0, ephemeral_message_id=1)
    assert name_of(ephemeral, collect) == f"ephemeral:{name_of(public, collect)}"


def by_chat(update: dict[str, Any]) -> str:
    return "chat"


def test_albums_are_only_the_parts_of_one_album() -> None:
    one, other = photo(media_group_id="1"), photo(media_group_id="2")
    assert name_of(one, "albums") == name_of(one, "albums") != name_of(other, "albums")
    assert name_of(new("edited_message", media_group_id="1"), "albums") is None
    assert name_of(photo(), "albums") is None


@pytest.mark.slow
@given(update=UPDATES)
def test_any_json_has_a_printable_name_or_none(update: Any) -> None:
    for collect in ("albums", "messages"):
        name = name_of(update, collect)
        assert name is None or name.isprintable()


def by_language(update: dict[str, Any]) -> Any:
    return update["message"]["from"]["language_code"]


def test_a_function_names_the_groups() -> None:
    collect = f"{__name__}:by_language"
    assert name_of(new(**{"from": {"language_code": "de"}}), collect) == "de"
    assert name_of(new(**{"from": {"language_code": None}}), collect) is None


def test_a_function_is_not_asked_about_payments() -> None:
    payments = [
        {"update_id": 1, "pre_checkout_query": {"id": "1", "from": ANN}},
        new(successful_payment={}, **{"from": {"language_code": "de"}}),
    ]
    assert [name_of(update, f"{__name__}:by_language") for update in payments] == [None, None]


@pytest.mark.parametrize(
    ("language", "problem"),
    [
        (5, "must return None, or a name with 1 to 256 characters and no control characters, not 5"),
        ("", "must return None, or a name with 1 to 256 characters and no control characters, not ''"),
        ("a\nb", "must return None, or a name .* not 'a\\\\nb'"),
        ("x" * 100_000, r"must return None, or a name .* not 'x{1,20}\.\.\.x{1,20}'$"),
    ],
)
def test_a_name_that_is_not_one_is_refused(language: Any, problem: str) -> None:
    with pytest.raises(KeysError, match=rf"test_collecting:by_language \(COLLECT\) {problem}"):
        name_of(new(**{"from": {"language_code": language}}), f"{__name__}:by_language")


class Shy:
    def __repr__(self) -> str:
        raise LookupError


class Silent(Exception):  # noqa: N818
    __str__ = Shy.__repr__


class Language(str, Enum):  # noqa: UP042 - its text depends on the version of Python
    DE = "de"


@pytest.mark.parametrize(
    "result",
    [Shy(), 10**5000, ["x" * 10**6], Silent(), ValueError("x" * 10**6), SystemExit(3)],
    ids=["shy", "huge", "long", "silent", "large", "exits"],
)
def test_whatever_a_function_does_is_a_short_error(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESULTS, "result", result)
    with pytest.raises(KeysError, match=rf"^{__name__}:hostile \(COLLECT\) ") as caught:
        name_of(new(text="a"), f"{__name__}:hostile")
    assert len(str(caught.value)) < 3_000


RESULTS: dict[str, Any] = {}


def hostile(update: dict[str, Any]) -> Any:
    if isinstance(found := RESULTS["result"], BaseException):
        raise found
    return found


async def later(update: dict[str, Any]) -> str:
    return "a"


def test_a_name_is_a_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESULTS, "result", Language.DE)
    name = name_of(new(text="a"), f"{__name__}:hostile")
    assert (type(name), name) == (str, "de")


def test_an_async_function_is_found_at_start() -> None:
    with pytest.raises(ImportPathError, match="is an async function; name one that returns the name of a group"):
        grouping(settings_of("redis://unused", COLLECT=f"{__name__}:later"))


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(KeysError, match=r"by_language \(COLLECT\) failed with KeyError: 'message'"):
        name_of({"update_id": 1}, f"{__name__}:by_language")


@pytest.mark.parametrize("path", ["no_such_module:name", f"{__name__}:missing", f"{__name__}:ANN"])
def test_a_function_that_cannot_be_loaded_is_found_at_start(path: str) -> None:
    with pytest.raises(ImportPathError, match=f"COLLECT={path}"):
        grouping(settings_of("redis://unused", COLLECT=path))
