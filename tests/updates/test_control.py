"""CONTROL: the updates that stop the run before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.parsing import parse
from chatlanes.updates.routing import OwnName, controlling, unknown
from tests.settings.test_settings import TOKEN


def says(text: str, kind: str = "message") -> dict[str, Any]:
    return {"update_id": 1, kind: {"chat": {"id": 7}, "text": text}}


def stops(update: dict[str, Any], control: str = "/stop,/cancel", own_name: Callable[[], str | None] = unknown) -> bool:
    found = controlling(control, own_name)
    assert found is not None
    return found(update, parse(update))


def by_text(update: dict[str, Any]) -> Any:
    return update["message"]["text"] == "enough"


async def coroutine(update: dict[str, Any]) -> bool:
    return True


HERE = "tests.updates.test_control"


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (says("/stop"), True),
        (says("/Cancel"), True),
        (says("/stop@my_bot please"), True),
        (says("/stop", "business_message"), True),
        ({"update_id": 1, "stopped_message_generation": {"chat": {"id": 7}, "draft_id": 1}}, True),
        (says("/stopped"), False),
        (says("stop"), False),
        (says("do not /stop"), False),
        (says("/"), False),
        (says("/stop", "edited_message"), False),
        ({"update_id": 1, "message": {"chat": {"id": 7}, "text": 5}}, False),
        ({"update_id": 1, "callback_query": {"data": "/stop"}}, False),
    ],
)
def test_commands_and_the_stop_button(update: dict[str, Any], expected: bool) -> None:
    assert stops(update) is expected


def test_none_stops_nothing() -> None:
    assert controlling("none") is None


def test_a_command_for_another_bot_is_not_for_this_one() -> None:
    asked: list[int] = []
    own_name = OwnName(lambda: asked.append(1) or "My_Bot")  # type: ignore[func-returns-value]
    assert stops(says("/stop"), own_name=own_name)
    assert asked == []
    assert stops(says("/stop@my_bot please"), own_name=own_name)
    assert stops(says("/STOP@MY_BOT"), own_name=own_name)
    assert not stops(says("/stop@my_bot2"), own_name=own_name)
    assert not stops(says("/help@other_bot"), own_name=own_name)
    assert asked == [1]


def test_while_the_username_is_not_known_every_bot_is_meant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([RuntimeError("no answer"), "my_bot"])

    def ask() -> str:
        match next(answers):
            case Exception() as failure:
                raise failure
            case name:
                return name

    own_name = OwnName(ask)
    assert stops(says("/stop@other_bot"), own_name=own_name)
    assert stops(says("/stop@other_bot"), own_name=own_name)
    assert caplog.messages == ["the bot's username is not known: no answer"]
    monkeypatch.setattr(own_name, "_again_s", 0.0)
    assert not stops(says("/stop@other_bot"), own_name=own_name)


def test_a_function_of_the_user_decides() -> None:
    assert stops(says("enough"), f"{HERE}:by_text") is True
    assert stops(says("/stop"), f"{HERE}:by_text") is False


def test_an_update_for_which_the_function_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert stops({"update_id": 1}, f"{HERE}:by_text") is False
    assert caplog.messages == [
        f"{HERE}:by_text (CONTROL) failed with KeyError: 'message': this update stops nothing",
    ]


def test_a_function_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ImportPathError, match="is an async function; name one that returns true or false"):
        controlling(f"{HERE}:coroutine")
    with pytest.raises(ImportPathError, match=f"CONTROL={HERE}:nothing"):
        controlling(f"{HERE}:nothing")


def given(control: str) -> Settings:
    return load({"BOT_TOKEN": TOKEN, "CONTROL": control}, env_file=None)


def test_the_setting() -> None:
    assert given(" /Halt , /stop ").control == "/halt,/stop"
    assert given("none").control == "none"
    assert given("mybot:stops").control == "mybot:stops"
    for wrong in ("stop", "/stop now", "/stop,none", ",", "my bot:stops"):
        with pytest.raises(SettingsError, match="allowed is none, a comma list of commands"):
            given(wrong)
