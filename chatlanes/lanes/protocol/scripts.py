"""Loads Lua verbs and binds their arguments by the names in their headers.

Guarantees that a call which does not match the header raises TypeError before anything is sent.
In a header, `-- ARGV  holder lease_ms` names the fixed arguments, `--       then id fence, …` the group that repeats,
and `-- With  gaps ending` the chunks of lua/lib that the file needs after the prelude.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from chatlanes.lanes.runtime.blocking import run_blocking

_FIXED = re.compile(r"^-- ARGV  (.*)$", re.MULTILINE)
_WITH = re.compile(r"^-- With  ([\w ]+)$", re.MULTILINE)
_GROUP = re.compile(r"^--       then ([\w ]+?)(?:,.*)?$", re.MULTILINE)

LANES = "chatlanes.lanes.protocol"

Argument = str | bytes | int | float


class Script:
    """One verb, from the folder `lua` of a package. `group` is empty if no arguments repeat."""

    def __init__(self, name: str, package: str = LANES) -> None:
        verb = _read(name, package)
        self.name = name
        self.source = "".join(_read(f"lib/{chunk}", package) for chunk in ["prelude", *chunks(name, package)]) + verb
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.fixed, self.group = _contract(name, verb)

    def command(
        self, keys: Sequence[str] = (), group: Iterable[Sequence[Argument]] = (), **fixed: Argument
    ) -> list[Argument]:
        """The EVALSHA command. Raises TypeError if the arguments do not match the header."""
        if tuple(fixed) != self.fixed:
            raise TypeError(f"{self.name}.lua takes {self.fixed}, not {tuple(fixed)}")
        command: list[Argument] = ["EVALSHA", self.sha, len(keys), *keys, *fixed.values()]
        for values in group:
            if len(values) != len(self.group):
                raise TypeError(f"{self.name}.lua repeats {self.group}, not {values!r}")
            command.extend(values)
        return command

    def run(self, client: Redis, command: list[Argument]) -> Any:
        """Runs a command made by `command`. NOSCRIPT means that nothing ran: it is loaded and sent again."""
        return run_blocking(lambda: self._run(client, command))

    def _run(self, client: Redis, command: list[Argument]) -> Any:
        try:
            return client.execute_command(*command)
        except NoScriptError:
            client.script_load(self.source)
            return client.execute_command(*command)


def chunks(name: str, package: str = LANES) -> list[str]:
    """The chunks of `lua/lib` that a file needs, in order: each after the chunks that it needs itself."""
    needed = [chunk for line in _WITH.findall(_read(name, package)) for chunk in line.split()]
    return list(dict.fromkeys(each for chunk in needed for each in [*chunks(f"lib/{chunk}", package), chunk]))


@cache
def _read(name: str, package: str) -> str:
    return (files(package) / "lua" / f"{name}.lua").read_text()


def _contract(name: str, verb: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    argv = _FIXED.search(verb)
    if argv is None:
        raise ValueError(f"{name}.lua has no ARGV line in its header")
    group = _GROUP.search(verb)
    words = argv.group(1)
    if words == "none":
        return (), ()
    if group is None and "once for each" in words:  # only a group
        return (), tuple(words.split(",")[0].split())
    return tuple(words.split()), tuple(group.group(1).split()) if group else ()


@cache
def script(name: str, package: str = LANES) -> Script:
    return Script(name, package)


@cache
def digest(package: str = LANES) -> str:
    """The same in two processes whose scripts are the same."""
    lua = files(package) / "lua"
    found = [file for folder in (lua, lua / "lib") for file in folder.iterdir() if file.is_file()]
    sources = sorted((file.name, file.read_text()) for file in found)
    return hashlib.sha1(repr(sources).encode(), usedforsecurity=False).hexdigest()[:12]
