"""docker-compose.yml as Compose would read it: variables filled in, each service with its command and environment.

Promises only what the file's own tests need of the specification: `${NAME}`, `${NAME:-default}`, `${NAME:?error}`,
`$$` and merge keys.
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
    command: list[str]  #: empty: the image's own
    environment: dict[str, str]
    check: list[str]  #: of its health; empty: none
    said: dict[str, Any]  #: everything, as it stands in the file


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """Every service, of all profiles. Raises KeyError for a variable that must be set and is not."""
    said = _filled(whole_file(), variables)["services"]
    return {name: _service(name, each) for name, each in said.items()}


def whole_file() -> dict[str, Any]:
    yaml = YAML(typ="safe", pure=True)
    loaded: dict[str, Any] = yaml.load(FILE)
    return loaded


def _service(name: str, said: dict[str, Any]) -> Service:
    check = list(said.get("healthcheck", {}).get("test", []))
    if check[:1] == ["CMD-SHELL"]:
        check = ["CMD", "sh", "-c", check[1]]
    environment = {key: str(value) for key, value in said.get("environment", {}).items()}
    return Service(name, shlex.split(said.get("command", "")), environment, check[1:], said)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: _one(found, variables), value).replace("$$", "$")


def _one(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name, how, rest = found["name"], found["how"], found["rest"]
    return variables[name] if how == "?" else variables.get(name) or rest or ""
