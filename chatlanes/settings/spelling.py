"""Finds settings that look misspelled, and lines of `.env` that are not `NAME=value`.

A name is reported only if it is one or two letters away from a setting that is not set. Short settings, and names that
differ only in digits, are never reported: too many other programs have variables like these.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dotenv.parser import parse_stream

from chatlanes.settings.table import rows

#: A process that has warned sets this to 1 in the environment of its children.
CHECKED = "CHATLANES_SETTINGS_CHECKED"
#: Settings shorter than this are not compared, and shorter ones than the second with one change only.
SHORTEST, SHORTEST_FOR_TWO = 6, 12
#: Variables of other programs whose names are close to a setting.
FOREIGN = frozenset({"POOL_TIMEOUT", "PULL_TIMEOUT", "LOG_FORMATS"})


def settings_warnings(env: Mapping[str, str] | None = None, env_file: str | Path | None = ".env") -> list[str]:
    """A sentence for each likely mistake; none in a process whose parent has warned."""
    environment = os.environ if env is None else env
    if environment.get(CHECKED) == "1":
        return []
    names, unreadable = _read(env_file)
    return [*unreadable, *misspelled([*environment, *names])]


def misspelled(names: Iterable[str]) -> list[str]:
    given = dict.fromkeys(name for name in names if name)
    is_set = {name.upper() for name in given}
    ours = [row.name for row in rows().values()]
    unknown = [name for name in given if name.upper() not in {*ours, *FOREIGN}]
    unset = [name for name in ours if name not in is_set]
    likely = ((name, likely_setting(name.upper(), unset)) for name in unknown)
    return [f"{name} is not a setting; did you mean {setting}?" for name, setting in likely if setting]


def likely_setting(name: str, settings: Iterable[str]) -> str | None:
    """The setting that this is a misspelling of; None: it is something else."""
    near = [(_changes(name, setting), setting) for setting in settings if _is_comparable(name, setting)]
    changes, setting = min(near, default=(0, ""))
    return setting if setting and changes <= (2 if len(setting) >= SHORTEST_FOR_TWO else 1) else None


def _is_comparable(name: str, setting: str) -> bool:
    if len(setting) < SHORTEST or abs(len(name) - len(setting)) > 2:
        return False
    if "_" not in setting and len(name) == len(setting) and sorted(name) != sorted(setting):
        return False  # another word, such as FILLER
    return re.sub(r"_?\d+", "", name) != setting


def _changes(one: str, other: str) -> int:
    """How many letters differ: left out, added, replaced, or swapped with the next one."""
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        now = [row]
        for column, wanted in enumerate(other, start=1):
            cost = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                cost = min(cost, before_last[column - 2] + 1)
            now.append(cost)
        before_last, last = last, now
    return last[-1]


def _read(env_file: str | Path | None) -> tuple[list[str], list[str]]:
    """The names in the file, and a sentence for each line that is not understood."""
    if env_file is None or not Path(env_file).is_file():
        return [], []
    names, unreadable = [], []
    with Path(env_file).open(encoding="utf-8") as stream:
        for binding in parse_stream(stream):
            if binding.error:
                stripped = binding.original.string.lstrip("\n")
                line = binding.original.line + len(binding.original.string) - len(stripped)
                unreadable.append(f"{env_file}, line {line} is ignored: it is not NAME=value")
            elif binding.key:
                names.append(binding.key)
    return names, unreadable


@contextmanager
def without_dotenv_warnings() -> Iterator[None]:
    """`settings_warnings` reports unreadable lines once; the library reports them at each reading."""
    log = logging.getLogger("dotenv.main")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled
