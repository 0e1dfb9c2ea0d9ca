"""Notices changes of the Python and .env files below a folder, by their modification times.

Installed packages and hidden folders are not watched.
"""

from __future__ import annotations

import os
from pathlib import Path

#: A folder with more is no bot's.
MOST_FILES = 5_000
PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


class FileWatcher:
    """Since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def have_changed(self) -> bool:
        seen, self._seen = self._seen, self._look()
        return seen != self._seen

    def _look(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, inside, names in os.walk(self._folder):
            inside[:] = [name for name in inside if not name.startswith(".") and name not in PASSED_OVER]
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
