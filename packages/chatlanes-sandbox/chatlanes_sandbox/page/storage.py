"""The storage that survives a restart: one SQLite file, with JSON values.

Stored values survive a kill of this process; a power failure may take the last moments. Updates of chats that are not
the page's are kept in memory.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from chatlanes_sandbox.simulator.calls.files import FOLDER, FileStore
from chatlanes_sandbox.simulator.stream import Update

#: The newest rows of each table that are kept.
MOST = {"messages": 20_000, "updates": 20_000, "calls": 40_000, "files": 500}

_TABLES = """
CREATE TABLE IF NOT EXISTS chats (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS messages (chat INTEGER, id INTEGER, value BLOB, PRIMARY KEY (chat, id));
CREATE TABLE IF NOT EXISTS updates (id INTEGER PRIMARY KEY, value BLOB, life BLOB);
CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, update_id INTEGER, value BLOB);
CREATE INDEX IF NOT EXISTS calls_of ON calls (update_id);
CREATE TABLE IF NOT EXISTS files (id TEXT PRIMARY KEY, name TEXT, content BLOB);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB);
"""


class StorageError(RuntimeError):
    """Another page uses the file, or it is not the file of a page."""


class PageStorage:
    """The file of one page; no other process may have it open."""

    def __init__(self, file: Path) -> None:
        """Raises StorageError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file, isolation_level=None, timeout=1.0, check_same_thread=False)
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            # A kill of this process loses nothing of the operating system's cache.
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            why = "another sandbox uses it" if "locked" in str(error) else str(error)
            raise StorageError(
                f"The page's file {file} cannot be used: {why}. Name another one with --data DIR (sandbox) or --page "
                "FILE (simulator)."
            ) from error
        os.chmod(file, 0o600)
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        for table, most in MOST.items():
            newest = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1 OFFSET {most}"  # noqa: S608 - our own names
            self._db.execute(f"DELETE FROM {table} WHERE rowid <= ({newest})")  # noqa: S608

    # ── chats and messages ──

    def chats(self) -> Iterator[Any]:
        return self._values("SELECT value FROM chats ORDER BY rowid")

    def put_chat(self, chat_id: int, chat: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO chats VALUES (?, ?)", (chat_id, orjson.dumps(chat)))

    def messages(self) -> Iterator[Any]:
        return self._values("SELECT value FROM messages ORDER BY chat, id")

    def put_message(self, chat_id: int, message_id: int, message: Any) -> None:
        self._db.execute(
            "INSERT INTO messages VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (chat_id, message_id, orjson.dumps(message)),
        )

    def clear(self, chat_id: int) -> None:
        self._db.execute("DELETE FROM messages WHERE chat = ?", (chat_id,))

    # ── updates and calls ──

    def put_update(self, update_id: int, update: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO updates VALUES (?, ?, NULL)", (update_id, orjson.dumps(update)))

    def put_progress(self, update_id: int, progress: Any) -> None:
        self._db.execute("UPDATE updates SET life = ? WHERE id = ?", (orjson.dumps(progress), update_id))

    def update(self, update_id: int) -> Any:
        """None if it is not stored."""
        return next(self._values("SELECT value FROM updates WHERE id = ?", update_id), None)

    def updates_from(self, update_id: int) -> Iterator[Any]:
        return self._values("SELECT value FROM updates WHERE id >= ? ORDER BY id", update_id)

    def progress_table(self) -> Iterator[Any]:
        return self._values("SELECT life FROM updates WHERE life IS NOT NULL ORDER BY id")

    def last_update_id(self) -> int:
        found = self._db.execute("SELECT max(id) FROM updates").fetchone()[0]
        return int(found or 0)

    def put_call(self, update_id: int, call: Any) -> None:
        self._db.execute("INSERT INTO calls (update_id, value) VALUES (?, ?)", (update_id, orjson.dumps(call)))

    def calls_of(self, update_id: int) -> list[Any]:
        return list(self._values("SELECT value FROM calls WHERE update_id = ? ORDER BY id", update_id))

    # ── files and notes ──

    def put_file(self, file_id: str, name: str, content: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (file_id, name, content))

    def file(self, file_id: str) -> tuple[str, bytes] | None:
        """Its name and its content."""
        found: tuple[str, bytes] | None = self._db.execute(
            "SELECT name, content FROM files WHERE id = ?", (file_id,)
        ).fetchone()
        return found

    def note(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, orjson.dumps(value)))

    def noted(self, name: str, default: Any) -> Any:
        return next(self._values("SELECT value FROM notes WHERE name = ?", name), default)

    def close(self) -> None:
        self._db.close()

    def _values(self, query: str, *given: Any) -> Iterator[Any]:
        return (orjson.loads(value) for (value,) in self._db.execute(query, given))


class PageFiles(FileStore):
    """The files that users and the bot sent, by file_id and by the path that getFile returns.

    A file_id that is not kept has the content that every file_id has without a page.
    """

    keeps = True

    def __init__(self, storage: PageStorage) -> None:
        self._storage = storage

    def keep(self, name: str, content: bytes) -> str:
        file_id = f"page-{secrets.token_urlsafe(18)}"
        self._storage.put_file(file_id, name.replace("/", "_"), content)
        return file_id

    def content_of(self, file_id: str) -> bytes:
        found = self._storage.file(file_id)
        return found[1] if found else super().content_of(file_id)

    def path_of(self, file_id: str) -> str:
        found = self._storage.file(file_id)
        return f"{FOLDER}{file_id}/{found[0]}" if found else super().path_of(file_id)

    def at(self, path: str) -> bytes | None:
        file_id, slash, _ = path.removeprefix(FOLDER).partition("/")
        return self.content_of(file_id) if slash and path.startswith(FOLDER) else super().at(path)


#: Updates of chats that are not the page's, remembered with their calls.
MOST_PASSING = 2_000


class UpdateLog:
    """Raw updates and the calls made for each, by update id."""

    def __init__(self, storage: PageStorage) -> None:
        self._storage = storage
        self._passing: OrderedDict[int, tuple[Update, list[Any]]] = OrderedDict()

    def add(self, update_id: int, update: Update, *, is_stored: bool) -> None:
        whole = {"update_id": update_id, **update}
        if is_stored:
            self._storage.put_update(update_id, whole)
            return
        self._passing[update_id] = whole, []
        while len(self._passing) > MOST_PASSING:
            self._passing.popitem(last=False)

    def update(self, update_id: int) -> Any:
        """None if it is not known, or not any more."""
        return self._passing[update_id][0] if update_id in self._passing else self._storage.update(update_id)

    def add_call(self, update_id: int, call: dict[str, Any], answer: Any, status: int) -> None:
        noted = {"at_s": call["at"], "method": call["method"], "params": call["params"]}
        noted |= {"answer": answer, "status": status, "place": call.get("place", "")}
        if update_id in self._passing:
            self._passing[update_id][1].append(noted)
        else:
            self._storage.put_call(update_id, noted)

    def calls_of(self, update_id: int) -> list[Any]:
        return self._passing[update_id][1] if update_id in self._passing else self._storage.calls_of(update_id)
