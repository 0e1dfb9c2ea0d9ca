"""Finds settings that look misspelled, and lines of `.env` that are not `NAME=value`.

A name is reported only if nearly all its letters are those of a setting that is not set. Short settings, and names that
differ only in digits, are never reported: too many other programs have variables like these.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from dotenv.parser import parse_stream

from chatlanes.settings.table import rows

#: A process that has warned sets this to 1 in the environment of its children.
CHECKED = "CHATLANES_SETTINGS_CHECKED"
#: Settings shorter than this are not compared.
SHORTEST = 6
#: The ratio of difflib for one letter of eight.
LEAST_ALIKE = 0.875
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
    without_digits = re.sub(r"_?\d+", "", name)
    comparable = [setting for setting in settings if len(setting) >= SHORTEST and setting != without_digits]
    return next(iter(get_close_matches(name, comparable, n=1, cutoff=LEAST_ALIKE)), None)


def _read(env_file: str | Path | None) -> tuple[list[str], list[str]]:
    """The names in the file, and a sentence for each line that is not understood."""
    if env_file is None or not Path(env_file).is_file():
        return [], []
    names, unreadable = [], []
    with Path(env_file).open(encoding="utf-8") as stream:
        for binding in parse_stream(stream):
            if binding.error or (binding.key and binding.value is None):
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
