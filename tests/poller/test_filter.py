"""The filter: by kind and by a custom function, and updates on which that function fails."""

import logging
from pathlib import Path
from typing import Any

import pytest

from chatlanes.poller.filter import Filter
from chatlanes.settings import load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.parsing import CutUpdate
from tests.poller.test_offset import MALFORMED, update

OWN = """
def odd(update):
    return update["update_id"] % 2

def failing(update):
    if update["update_id"] < 3:
        raise KeyError("message")
    return 1 // (update["update_id"] - 3)

def emptying(update):
    return update.pop("update_id") and not update.clear()

async def later(update):
    return True

limit = 7
"""


@pytest.fixture(autouse=True)
def own_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_filters.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def filter_of(**env: str) -> Filter:
    return Filter(load({"BOT_TOKEN": "123456:SECRET-part-of-it", **env}, env_file=None))


def test_a_function_that_changes_the_update_changes_a_copy() -> None:
    batch = [update(1), update(2, "poll")]
    assert filter_of(FILTER="own_filters:emptying").admitted(batch) == [update(1), update(2, "poll")] == batch


def ids(updates: list[Any]) -> list[int]:
    return [each["update_id"] for each in updates]


BATCH = [update(1), update(2, "poll"), update(3, "callback_query"), update(4), {"update_id": 5}]


@pytest.mark.parametrize(
    ("env", "let_in"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"FILTER": "message"}, [1, 4]),
        ({"FILTER": "callback_query, message,no_such_kind"}, [1, 3, 4]),
        ({"FILTER": "own_filters:odd"}, [1, 3, 5]),
        ({"FILTER": "own_filters:odd", "ALLOWED_UPDATES": "message,poll"}, [1]),
        ({"FILTER": "poll", "ALLOWED_UPDATES": "message"}, []),
    ],
)
def test_kinds_and_filter_both_apply(env: dict[str, str], let_in: list[int]) -> None:
    assert ids(filter_of(**env).admitted(BATCH)) == let_in


def test_unknown_kind_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        filter_of(FILTER="mesage,poll", ALLOWED_UPDATES="message,quite_new")
    assert caplog.messages == [
        "ALLOWED_UPDATES: quite_new is not a known kind of update; correct it, unless the kind is newer than this "
        "version",
        "FILTER: mesage is not a known kind of update; did you mean message?",
    ]


def test_filter_does_not_see_malformed_updates() -> None:
    batch = [*MALFORMED, CutUpdate(update(4))]
    assert filter_of(FILTER="own_filters:odd", ALLOWED_UPDATES="message").admitted(batch) == batch


def test_update_on_which_the_filter_fails_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = filter_of(FILTER="own_filters:failing")
    assert ids(own.admitted([update(n) for n in (1, 2, 3, 3, 4, 5)])) == [1, 2, 3, 3, 4]
    assert ids(own.admitted([update(1)])) == [1]
    errors = [(each.levelno, each.getMessage(), each.exc_info[0]) for each in caplog.records if each.exc_info]
    assert errors == [
        (logging.ERROR, "FILTER failed for update 1, which is admitted; logged once", KeyError),
        (logging.ERROR, "FILTER failed for update 3, which is admitted; logged once", ZeroDivisionError),
    ]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("own_filters:even", "FILTER=own_filters:even: own_filters has no even"),
        ("own_filters:limit", "FILTER=own_filters:limit names a value of type int"),
        ("own_filters:later", "FILTER=own_filters:later is an async function; name one that returns"),
        ("no_such_module:odd", "FILTER=no_such_module:odd: there is no module no_such_module"),
    ],
)
def test_filter_that_cannot_be_loaded_is_reported_at_start(path: str, sentence: str) -> None:
    with pytest.raises(ImportPathError, match=sentence):
        filter_of(FILTER=path)
