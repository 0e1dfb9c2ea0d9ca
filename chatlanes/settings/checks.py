"""Checks of settings beyond their types: pure functions that return the value or raise ValueError.

The sentences that users read are next to their settings, in `settings.model`.
"""

import re
import shlex
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationInfo

ORDERS = ("chat", "chat+user", "topic", "user", "bot")
NO_COLLECT = "none"
NO_CONTROL = "none"
RATE_BYS = ("user", "chat")
COLLECTS = (NO_COLLECT, "albums", "messages")

#: Where Telegram's webhooks come from (core.telegram.org/bots/webhooks, "The short version").
NAMED_NETWORKS = {"telegram": ("149.154.160.0/20", "91.108.4.0/22")}

_KIND = re.compile(r"[a-z]+(_[a-z]+)*")
_RATE = re.compile(r"([0-9]{1,6})/([0-9]{1,5}(?:\.[0-9]{1,3})?)")
_COMMAND = re.compile(r"/[A-Za-z0-9_]{1,32}")
_TOKEN = re.compile(r"[0-9]{1,19}:[A-Za-z0-9_-]{1,100}")
_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
_TOKEN_WITHIN = re.compile(r"[0-9]{3,}(:|%3A)[A-Za-z0-9_-]{10,}", re.IGNORECASE)
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")
_HOSTS = re.compile(r"[\w.\-\[\]:,]*(/[\w.\-]*)*")


def without_blanks(given: Any) -> Any:
    """The given values, stripped, without the empty ones: compose files and CI write "unset" as an empty string."""
    if not isinstance(given, dict):
        return given
    stripped = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
    return {name: value for name, value in stripped.items() if value != ""}


def bot_token(text: str) -> str:
    return _matching(_TOKEN, text)


def bots_key(text: str) -> str:
    """Keys of Fernet, each 32 bytes in base64, with commas between them and no blanks."""
    each_key = [key.strip() for key in text.split(",")]
    for key in each_key:
        _matching(_FERNET_KEY, key)
    return ",".join(each_key)


def webhook_secret(text: str) -> str:
    return _matching(_WEBHOOK_SECRET, text)


def web_address(text: str) -> str:
    """An http(s) address without its trailing slash, as a prefix of paths; never one that contains a token."""
    parts = urlsplit(text)
    _require(parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment)
    _require(parts.port != 0 and not re.search(r"\s", text) and not _TOKEN_WITHIN.search(text))
    return text.rstrip("/")


def redis_address(text: str) -> str:
    """A Redis URL; several Sentinels are separated by semicolons, as in Celery."""
    addresses = text.split(";")
    schemes = {urlsplit(address).scheme for address in addresses}
    _require(len(schemes) == 1 and schemes <= {"redis", "rediss", "sentinel"})
    _require(len(addresses) == 1 or schemes == {"sentinel"})
    for address in addresses:
        parts = urlsplit(address)
        _require(bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", address))
        _require(re.fullmatch(r"/?[0-9]*", parts.path) is not None)
    return text


def import_path(text: str) -> str:
    """`module:attribute`, each a dotted name."""
    module, colon, attribute = text.partition(":")
    names = [*module.split("."), *attribute.split(".")]
    _require(bool(colon) and all(name.isidentifier() for name in names))
    return text


def bot_path(text: str) -> str:
    """An import path, or the path of a Python file."""
    return text if text.endswith(".py") else import_path(text)


def command_line(text: str) -> str:
    shlex.split(text)
    return text


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    """Or an import path."""
    return lambda text: text if text in names else import_path(text)


order, collect, rate_by = _one_of(ORDERS), _one_of(COLLECTS), _one_of(RATE_BYS)


def interrupt(text: str, info: ValidationInfo) -> str:
    """Only a group of updates can be interrupted or steered. A wrong COLLECT is reported on its own."""
    _require(text == "off" or info.data.get("collect") != NO_COLLECT)
    return text


def control(text: str) -> str:
    """`none`, a comma list of commands, or `module:attribute`, as text."""
    if ":" in text:
        return import_path(text)
    names = [name.strip() for name in text.split(",") if name.strip()]
    _require(text == NO_CONTROL or (bool(names) and all(_COMMAND.fullmatch(name) for name in names)))
    return text if text == NO_CONTROL else ",".join(names).lower()


def user_rate(text: str) -> str:
    """How many updates in how many seconds."""
    found = _RATE.fullmatch(text)
    _require(found is not None and int(found[1]) > 0 and float(found[2]) > 0)
    return text


def kinds(text: Any) -> Any:
    """A comma list of kinds of update. Any name of the right shape: Telegram adds kinds faster than we release."""
    names = text.split(",") if isinstance(text, str) else text
    _require(isinstance(names, list | tuple) and all(isinstance(name, str) for name in names))
    names = [name.strip() for name in names]
    named = tuple(dict.fromkeys(name for name in names if name))
    _require(bool(named) and all(_KIND.fullmatch(name) for name in named))
    return named


def networks(text: Any) -> Any:
    """A comma list of addresses, networks and names of networks, as a tuple of networks."""
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else list(text)
    known = [known for name in names if name for known in NAMED_NETWORKS.get(name, (name,))]
    found = tuple(dict.fromkeys(str(ip_network(name)) for name in known))
    _require(bool(found))
    return found


def kinds_or_path(text: str) -> str:
    """A comma list of kinds, or `module:attribute`, as text."""
    return import_path(text) if ":" in text else ",".join(kinds(text))


def folder(path: Path) -> Path:
    """It need not exist here: only workers read files."""
    _require(path.is_absolute() and path != path.parent)
    return path


def existing_file(path: Path) -> Path:
    _require(path.is_file())
    return path


def shown(text: str) -> str:
    """A value without passwords and tokens that were written into it by mistake."""
    return _TOKEN_WITHIN.sub("***", re.sub(r"//[^/]*@", "//***@", text))


def redis_address_shown(text: str) -> str:
    """A Redis URL without anything that may be a password: all but hosts, ports and a path."""
    return ";".join(map(_place_shown, text.split(";")))


def _place_shown(address: str) -> str:
    scheme, divider, rest = address.rpartition("://")
    secret, _, place = rest.partition("?")[0].rpartition("@")
    hidden = "***@" if secret else ""
    shown = place if _HOSTS.fullmatch(place) and not re.search(r"(^|\D):\D|^:", place) else "***"
    return f"{scheme if scheme.isalnum() or not scheme else '***'}{divider}{hidden}{shown}"


def _matching(pattern: re.Pattern[str], text: str) -> str:
    _require(pattern.fullmatch(text) is not None)
    return text


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
