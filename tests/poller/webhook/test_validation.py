"""Validation of a webhook request."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from chatlanes.poller.webhook.validation import (
    MOST_BYTES,
    Rejection,
    RequestValidator,
    is_within,
    update_of,
)
from chatlanes.settings import secret_from

SECRET = b"s3cret"
JSON = {b"content-type": b"application/json"}
SENT = {**JSON, b"x-telegram-bot-api-secret-token": SECRET}


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        (SENT, None),
        ({**SENT, b"content-type": b"Application/JSON; charset=utf-8"}, None),
        ({**SENT, b"content-length": b"%d" % MOST_BYTES}, None),
        ({**SENT, b"content-encoding": b"identity"}, None),
        ({}, Rejection.NO_SECRET),
        (JSON, Rejection.NO_SECRET),
        ({**SENT, b"x-telegram-bot-api-secret-token": b""}, Rejection.WRONG_SECRET),
        ({**SENT, b"x-telegram-bot-api-secret-token": SECRET + b"x"}, Rejection.WRONG_SECRET),
        ({**SENT, b"x-telegram-bot-api-secret-token": b"\xff"}, Rejection.WRONG_SECRET),
        ({**SENT, b"content-type": b"text/plain"}, Rejection.WRONG_TYPE),
        ({**SENT, b"content-type": b""}, Rejection.WRONG_TYPE),
        ({**SENT, b"content-encoding": b"gzip"}, Rejection.WRONG_TYPE),
        ({**SENT, b"content-length": b"%d" % (MOST_BYTES + 1)}, Rejection.TOO_LONG),
        # The secret is checked first, so that a stranger learns nothing about bodies.
        ({b"content-length": b"9" * 15}, Rejection.NO_SECRET),
    ],
)
def test_accepted_headers(headers: dict[bytes, bytes], refused: Rejection | None) -> None:
    assert RequestValidator(SECRET).refusal("192.0.2.1", headers) is refused


@pytest.mark.parametrize(
    ("client", "refused"),
    [
        ("149.154.167.220", None),
        ("::ffff:149.154.167.220", None),
        ("2001:67c::1", None),
        ("192.0.2.1", Rejection.WRONG_NETWORK),
        ("unknown", Rejection.WRONG_NETWORK),
        (None, Rejection.WRONG_NETWORK),
    ],
)
def test_accepted_addresses(client: str | None, refused: Rejection | None) -> None:
    networks = (ip_network("149.154.160.0/20"), ip_network("2001:67c::/32"))
    assert RequestValidator(SECRET, networks).refusal(client, SENT) is refused
    assert is_within(client, networks) is (refused is None)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"update_id":7,"message":{}}', {"update_id": 7, "message": {}}),
        (b'{"update_id":"7"}', {"update_id": "7"}),  # is buried
        (b'{"update_id":null}', {"update_id": None}),
        (rb'{"update_id":7,"a":"\ud83d"}', {"update_id": 7, "a": "\ud83d"}),  # half a surrogate pair
        (b"{}", Rejection.NOT_AN_UPDATE),
        (b'{"message":{}}', Rejection.NOT_AN_UPDATE),
        (b'[{"update_id":7}]', Rejection.NOT_AN_UPDATE),
        (b"7", Rejection.NOT_AN_UPDATE),
        (b"null", Rejection.NOT_AN_UPDATE),
        (b"", Rejection.NOT_JSON),
        (b'{"update_id":7', Rejection.NOT_JSON),
        (b"\xff\xfe{}", Rejection.NOT_JSON),
        (b"[" * 100_000, Rejection.NOT_JSON),
        (b"[" * 100_000 + b"]" * 100_000, Rejection.NOT_AN_UPDATE),
        (b"9" * 10_000, Rejection.NOT_AN_UPDATE),
    ],
)
def test_accepted_bodies(body: bytes, found: Any) -> None:
    assert update_of(body) == found


def test_secret_is_valid_and_hides_the_token() -> None:
    secret = secret_from("123456:ABC-def")
    assert secret == secret_from("123456:ABC-def") != secret_from("123456:ABC-deg")
    assert len(secret) == 64
    assert secret.isalnum()
