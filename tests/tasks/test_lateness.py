"""MAX_AGE: which updates are late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chatlanes.settings import load
from chatlanes.settings.imports import ImportPathError
from chatlanes.tasks import lateness
from chatlanes.updates.parsing import parse
from chatlanes.updates.routing import controlling
from tests.settings.test_settings import TOKEN


def served(**settings: str) -> Any:
    given = load({"BOT_TOKEN": TOKEN, "MAX_AGE": "600", **settings}, env_file=None)
    stops = controlling(given.control)
    return SimpleNamespace(settings=given, stops=stops and (lambda update: stops(update, parse(update))))


def written(kind: str = "message", **body: Any) -> dict[str, Any]:
    return {"update_id": 1, kind: {"chat": {"id": 7}, "date": 1_800_000_000, "text": "hi", **body}}


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (written(), True),
        (written("channel_post"), True),
        (written("edited_business_message"), True),
        (written(text="/start"), True),
        (written(text="/stop"), False),
        (written(successful_payment={}), False),
        (written("callback_query"), False),
        (written("my_chat_member"), False),
        ({"update_id": 1, "message": {"chat": {"id": 7}, "new_chat_title": "x"}}, False),
        ({"update_id": 1}, False),
    ],
)
def test_only_what_people_write_is_late(update: dict[str, Any], expected: bool) -> None:
    assert lateness.is_late(served(), [update], 601) is expected
    assert lateness.is_late(served(), [update], 600) is False


def test_an_update_of_control_is_an_ordinary_one_without_control() -> None:
    assert lateness.is_late(served(CONTROL="none"), [written(text="/stop")], 601) is True


@pytest.mark.parametrize(
    ("later_s", "age_s", "expected"),
    [((0, 100), 701, True), ((0, 100), 700, False), ((0, 500, 100), 1101, True), ((0, 500, 100), 1100, False)],
)
def test_a_group_is_as_old_as_its_newest_message(later_s: tuple[int, ...], age_s: float, expected: bool) -> None:
    updates = [written(date=1_800_000_000 + each) for each in later_s]
    assert lateness.is_late(served(), updates, age_s) is expected


def test_a_group_without_dates_or_with_another_update_is_not_late() -> None:
    assert lateness.is_late(served(), [written(), written(date="x")], 10**6) is False
    assert lateness.is_late(served(), [written(), written("callback_query")], 10**6) is False


def test_an_edit_is_as_old_as_the_edit() -> None:
    updates = [written(), written("edited_message", edit_date=1_800_000_500)]
    assert lateness.is_late(served(), updates, 1000) is False


def test_functions_that_cannot_be_loaded_are_refused_at_the_start() -> None:
    lateness.check(served(MAX_AGE_ACTION="collect"))
    for settings in ({"CONTROL": "nowhere:f"}, {"COLLECT": "nowhere:f", "MAX_AGE_ACTION": "collect"}):
        with pytest.raises(ImportPathError, match="nowhere"):
            lateness.check(SimpleNamespace(settings=load({"BOT_TOKEN": TOKEN, **settings}, env_file=None)))  # type: ignore[arg-type]
