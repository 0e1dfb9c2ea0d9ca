"""Notices changes of the Python and .env files below a folder, by their modification times.

Installed packages and hidden folders are not watched.
"""

from __future__ import annotations

import os
from pathlib import Path

#: A folder with more files is not a bot's; the rest is not watched.
MOST_FILES = 5_000
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


class FileWatcher:
    """Compares with the previous check."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._scan()

    def have_changed(self) -> bool:
        seen, self._seen = self._seen, self._scan()
        return seen != self._seen

    def _scan(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, inside, names in os.walk(self._folder):
            inside[:] = [name for name in inside if not name.startswith(".") and name not in IGNORED]
            for name in names:
                if name.endswith((".py", ".env")) or name == ".env":
                    file = os.path.join(folder, name)
                    try:
                        found[file] = os.stat(file).st_mtime_ns
                    except OSError:
                        continue
            if len(found) > MOST_FILES:
                break
        return found
