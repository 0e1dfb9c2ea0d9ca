"""The output of several processes, line by line on standard output with a time and a name.

A closed terminal is not an error: the processes must still be stopped.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

STDOUT = 1
#: ANSI colours of the names, in a terminal.
COLOURS = (36, 33, 32, 35, 34, 31)
OWN_NAME = "system"


class Output:
    """Each name has a colour, in the order in which the names were added."""

    def __init__(self) -> None:
        self._colours: dict[str, int] = {}
        self._width = len(OWN_NAME)

    def add_name(self, name: str) -> None:
        self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        self._width = max(self._width, len(name))

    def say(self, name: str, *lines: str) -> None:
        prefix = f"{time.strftime('%H:%M:%S')} {name.ljust(self._width)} | "
        if name in self._colours and os.isatty(STDOUT):
            prefix = f"\033[0m\033[{self._colours[name]}m{prefix}\033[0m"
        left = "".join(f"{prefix}{line}\n" for line in lines).encode(errors="replace")
        with suppress(OSError):
            while left:
                left = left[os.write(STDOUT, left) :]

    def log(self, line: str) -> None:
        self.say(OWN_NAME, line)
