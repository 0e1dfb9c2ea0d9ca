"""Validation of a webhook request: its sender, its headers, and its body as an update. Pure.

Guarantees that a sender is validated from the headers alone, before the body is read, and that the secret is compared
in constant time.
"""

import hmac
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

from chatlanes.updates.parsing import read

#: Updates have some KiB: the longest text has 4,096 characters, and an update contains a few of them.
MOST_BYTES = 1 << 20

SECRET = b"x-telegram-bot-api-secret-token"

Networks = tuple[IPv4Network | IPv6Network, ...]


class Rejection(Enum):
    """Status and reason. The reason contains nothing of the request."""

    WRONG_NETWORK = 403, "this address is not in WEBHOOK_NETWORKS"
    NO_SECRET = 401, "no X-Telegram-Bot-Api-Secret-Token"
    WRONG_SECRET = 403, "a wrong X-Telegram-Bot-Api-Secret-Token"
    WRONG_TYPE = 415, "send application/json, not encoded"
    TOO_LONG = 413, "more than 1 MiB"
    TOO_SLOW = 408, "the body did not arrive in time"
    NOT_JSON = 400, "not JSON"
    NOT_AN_UPDATE = 400, "not an update: send a JSON object with an update_id"

    @property
    def status(self) -> int:
        return int(self.value[0])

    @property
    def words(self) -> str:
        return str(self.value[1])


@dataclass(frozen=True)
class RequestValidator:
    """Accepts requests from `networks`; from anywhere if it is empty."""

    secret: bytes
    networks: Networks = ()

    def refusal(self, client: str | None, headers: dict[bytes, bytes]) -> Rejection | None:
        """Why a request is refused before its body is read; None if it is not refused."""
        if self.networks and not is_within(client, self.networks):
            return Rejection.WRONG_NETWORK
        if (given := headers.get(SECRET)) is None:
            return Rejection.NO_SECRET
        if not hmac.compare_digest(given, self.secret):
            return Rejection.WRONG_SECRET
        if not is_json(headers):
            return Rejection.WRONG_TYPE
        return Rejection.TOO_LONG if length_of(headers) > MOST_BYTES else None


def is_within(client: str | None, networks: Networks) -> bool:
    try:
        address = ip_address(client or "")
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address  # a dual-stack socket reports IPv4 addresses like this
    return any(address in network for network in networks)


def is_json(headers: dict[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" and headers.get(b"content-encoding", b"identity") == b"identity"


def length_of(headers: dict[bytes, bytes]) -> int:
    """The announced length of the body; 0 if there is none."""
    announced = headers.get(b"content-length", b"")
    return int(announced) if announced.isdigit() and len(announced) < 20 else 0


def has_body(headers: dict[bytes, bytes]) -> bool:
    """True if a body follows the head."""
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""


def is_ambiguous(headers: dict[bytes, bytes]) -> bool:
    """True if a proxy may see another end of the body, and so another request behind it."""
    return b"transfer-encoding" in headers and b"content-length" in headers


def update_of(body: bytes) -> Any | Rejection:
    """The update. One with an invalid id or with unreadable parts is accepted: it is buried, where it can be seen, and
    Telegram does not send it again.
    """
    try:
        update = read(body)
    except ValueError:
        return Rejection.NOT_JSON
    return update if isinstance(update, dict) and "update_id" in update else Rejection.NOT_AN_UPDATE
