"""The output of several processes, line by line on standard output with a time and a name.

In a terminal the last line is a status line, which is redrawn. A closed terminal is not an error: the processes must
still be stopped.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from chatlanes.logs.foreign_text import visible

STDOUT = 1
ERASE_LINE = "\r\033[K"
#: ANSI colours of the names, in a terminal.
COLOURS = (36, 33, 32, 35, 34, 31)
OWN_NAME = "system"


def can_redraw(output: int = STDOUT) -> bool:
    return os.isatty(output) and os.environ.get("TERM") != "dumb"


class Output:
    """Each name has a colour, in the order in which the names were added."""

    def __init__(self, output: int = STDOUT) -> None:
        self._output = output
        self._colours: dict[str, int] = {}
        self._width = len(OWN_NAME)
        self._status = ""

    def add_name(self, name: str) -> None:
        self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        self._width = max(self._width, len(name))

    def say(self, name: str, *lines: str) -> None:
        prefix = f"{time.strftime('%H:%M:%S')} {name.ljust(self._width)} | "
        if name in self._colours and os.isatty(self._output):
            prefix = f"\033[0m\033[{self._colours[name]}m{prefix}\033[0m"
        self._write("".join(f"{prefix}{visible(line)}\n" for line in lines))

    def log(self, line: str) -> None:
        self.say(OWN_NAME, line)

    def show_status(self, name: str, line: str) -> None:
        """The status line from now on; empty: none. Where it cannot be redrawn, a line like all others."""
        if can_redraw(self._output):
            self._status = visible(line)
            self._write("")
        elif line:
            self.say(name, line)

    def _write(self, text: str) -> None:
        """Above the status line."""
        if can_redraw(self._output):
            width = os.get_terminal_size(self._output).columns
            text = f"{ERASE_LINE}{text}{self._status[: width - 1]}"
        left = text.encode(errors="replace")
        with suppress(OSError):
            while left:
                left = left[os.write(self._output, left) :]
