"""Any status with any body is a result or a typed error."""

import math

import pytest

from chatlanes.poller.bot_api import (
    FloodedError,
    PollConflictError,
    TelegramTroubleError,
    TokenRefusedError,
    result_of,
)


def test_result_is_returned_unchanged() -> None:
    assert result_of("getMe", 200, b'{"ok": true, "result": [{"update_id": 1}]}') == [{"update_id": 1}]


def test_half_a_surrogate_pair_does_not_block_its_batch() -> None:
    assert result_of("getMe", 200, rb'{"ok": true, "result": ["\ud83d"]}') == ["\ud83d"]


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, b'{"ok":false,"error_code":401,"description":"Unauthorized"}', TokenRefusedError, "the bot token (401"),
        (404, b'{"ok":false,"error_code":404,"description":"Not Found"}', TokenRefusedError, "the bot token (404"),
        (409, b'{"ok":false,"error_code":409,"description":"Conflict: x"}', PollConflictError, "409 Conflict: x"),
        (500, b'{"ok":false,"error_code":500,"description":"restart"}', TelegramTroubleError, "500 restart"),
        (502, b"<html>Bad Gateway</html>", TelegramTroubleError, "502 Bad Gateway, not an answer of a Bot API"),
        (
            404,
            b"<html>",
            TelegramTroubleError,
            "404 Not Found, not an answer of a Bot API to getMe (is BOT_API_URL right?)",
        ),
        (401, b"", TelegramTroubleError, "401 Unauthorized, not an answer of a Bot API"),
        (799, b"", TelegramTroubleError, "799 unknown status, not an answer"),
        (200, b"", TelegramTroubleError, "200 OK, not an answer of a Bot API"),
        (200, b"\xff\xfe\x00", TelegramTroubleError, "not an answer of a Bot API"),
        (200, b"[]", TelegramTroubleError, "not an answer of a Bot API"),
        (200, b"[" * 100_000, TelegramTroubleError, "not an answer of a Bot API"),
        (200, b'{"ok":1,"result":[]}', TelegramTroubleError, "not an answer of a Bot API"),
        (200, b'{"ok":true}', TelegramTroubleError, "200"),
        (200, b'{"ok":"yes","result":[]}', TelegramTroubleError, "not an answer of a Bot API to getMe"),
        (200, b'{"ok":false,"error_code":[401],"description":{}}', TelegramTroubleError, "200 without a description"),
    ],
)
def test_other_responses_are_typed_errors(status: int, body: bytes, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        result_of("getMe", status, body)
    assert type(caught.value) is kind
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "expected_s"),
    [
        (b'{"retry_after":7}', 7.0),
        (b'{"retry_after":0.5}', 0.5),
        (b'{"retry_after":"7"}', None),
        (b'{"retry_after":1e999}', math.inf),
        (b'{"retry_after":1e300}', 1e300),
        (b'{"retry_after":' + b"9" * 401 + b"}", int("9" * 401)),
        (b'{"retry_after":NaN}', None),
        (b'{"retry_after":true}', None),
        (b"{}", None),
        (b"null", None),
    ],
)
def test_429_has_the_time_to_wait(parameters: bytes, expected_s: float | None) -> None:
    with pytest.raises(FloodedError) as caught:
        result_of("getMe", 429, b'{"ok":false,"error_code":429,"parameters":' + parameters + b"}")
    assert caught.value.retry_after_s == expected_s
    assert str(caught.value) == "429, too many requests"


@pytest.mark.parametrize("part", [b"[" * 100_000 + b"]" * 100_000, b"9" * 5_000], ids=["deep", "long"])
def test_unreadable_update_does_not_block_its_batch(part: bytes) -> None:
    body = b'{"ok":true,"result":[{"update_id":1},{"update_id":2,"a":' + part + b'},{"update_id":3}]}'
    assert [update["update_id"] for update in result_of("getUpdates", 200, body)] == [1, 2, 3]
