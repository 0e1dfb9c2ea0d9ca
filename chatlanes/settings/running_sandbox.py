"""Lets commands in a second terminal find the sandbox that runs in this folder.

Guarantees that a sandbox is found exactly while it runs, even if it is killed: the lock of its file ends with its
process.
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from chatlanes.settings.model import SettingsError
from chatlanes.settings.reading import load

#: The usual folder for the data of a sandbox.
DATA = Path(".data")
FILE = "sandbox.env"


@contextmanager
def announced(folder: Path, supplied: Mapping[str, str]) -> Iterator[None]:
    """For as long as this lasts, `find` returns the settings that the sandbox supplies."""
    with (folder / FILE).open("w") as file:
        file.writelines(f"{name}={value}\n" for name, value in supplied.items())
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find(folder: Path = DATA) -> dict[str, str]:
    """The settings that a running sandbox supplies; empty if none runs here."""
    with suppress(OSError), (folder / FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return dict(line.rstrip("\n").split("=", 1) for line in file)
    return {}


def supplied() -> dict[str, str]:
    """The settings that this folder's sandbox supplies, unless the environment or `.env` names a Redis or a bot."""
    found = find()
    try:
        given = load().model_fields_set if found else set()
    except SettingsError:  # the command reports it
        return {}
    named = {name for name in ("REDIS_URL", "BOT_TOKEN") if name in found and name.lower() in given}
    return {} if named else found
