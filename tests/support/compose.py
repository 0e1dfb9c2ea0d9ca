"""docker-compose.yml as Compose reads it: variables substituted, each service with its command and environment.

Supports only the part of the specification that the file uses: `${NAME}`, `${NAME:-default}`, `${NAME:?error}`, `$$`
and merge keys.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

from tests.support import ROOT

FILE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")


@dataclass(frozen=True)
class Service:
    name: str
    command: list[str]  #: empty: the default of the image
    environment: dict[str, str]
    check: list[str]  #: the command of the health check; empty if there is none
    raw: dict[str, Any]  #: the whole section, as in the file


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """All services, of every profile. Raises KeyError for a required variable that is not set."""
    raw = _substituted(whole_file(), variables)["services"]
    return {name: _service(name, each) for name, each in raw.items()}


def whole_file() -> dict[str, Any]:
    yaml = YAML(typ="safe", pure=True)
    loaded: dict[str, Any] = yaml.load(FILE)
    return loaded


def _service(name: str, raw: dict[str, Any]) -> Service:
    check = list(raw.get("healthcheck", {}).get("test", []))
    if check[:1] == ["CMD-SHELL"]:
        check = ["CMD", "sh", "-c", check[1]]
    environment = {key: str(value) for key, value in raw.get("environment", {}).items()}
    command = raw.get("command", "")
    return Service(name, shlex.split(command) if isinstance(command, str) else command, environment, check[1:], raw)


def _substituted(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _substituted(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_substituted(each, variables) for each in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: _value_of(found, variables), value).replace("$$", "$")


def _value_of(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name, how, rest = found["name"], found["how"], found["rest"]
    return variables[name] if how == "?" else variables.get(name) or rest or ""
