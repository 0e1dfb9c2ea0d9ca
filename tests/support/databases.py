"""Database servers of Debian in directories of their own, run by an ordinary user. Their data is not meant to last."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from celery_lanes.embedded_server import free_port, terminate_with_parent
from tests.support.waiting import until

POSTGRESQL = Path("/usr/lib/postgresql")
MARIADB = Path("/usr/sbin/mariadbd")

#: Neither server runs as root.
USER: dict[str, Any] = {} if os.getuid() else {"user": "nobody", "group": "nogroup", "extra_groups": []}


ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


@dataclass
class Database:
    """A new database of a server. `connect` connects to it."""

    kind: str
    name: str
    port: int = 0
    user: str = ""

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.name, timeout=60)
        if self.kind == "postgresql":
            return psycopg.connect(self.url)
        return pymysql.connect(host="127.0.0.1", port=self.port, user=self.user, database=self.name)

    @property
    def url(self) -> str:
        """Of libpq and SQLAlchemy."""
        return f"sqlite:///{self.name}" if self.kind == "sqlite" else f"{self.kind}://{self._place}"

    @property
    def of_sqlalchemy(self) -> str:
        driver = {"sqlite": "", "postgresql": "+psycopg", "mysql": "+pymysql"}[self.kind]
        return self.url.replace("://", f"{driver}://", 1)

    @property
    def of_django(self) -> dict[str, object]:
        place = (
            {"HOST": "127.0.0.1", "PORT": self.port, "USER": self.user} if self.port else {"OPTIONS": {"timeout": 60}}
        )
        return {"ENGINE": f"django.db.backends.{ENGINES[self.kind]}", "NAME": self.name, **place}

    @property
    def _place(self) -> str:
        return f"{self.user}@127.0.0.1:{self.port}/{self.name}"


class Databases:
    """Makes databases. A server starts when it is needed, and stops with the context."""

    def __init__(self) -> None:
        self._servers = ExitStack()
        self._ports: dict[str, int] = {}
        self._numbers = count()

    def __enter__(self) -> Databases:
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def make(self, kind: str, folder: Path) -> Database:
        """Skips the test if the server is not installed. One of SQLite is a file in `folder`."""
        name = f"bank{next(self._numbers)}"
        if kind == "sqlite":
            return Database(kind, str(folder / name))
        if kind not in self._ports:
            self._ports[kind] = self._servers.enter_context(postgresql() if kind == "postgresql" else mariadb())
        user = "bank" if kind == "postgresql" else "root"
        made = Database(kind, "postgres" if kind == "postgresql" else "mysql", self._ports[kind], user)
        with closing(made.connect()) as database:
            if kind == "postgresql":
                database.autocommit = True
            database.cursor().execute(f"CREATE DATABASE {name}")
        made.name = name
        return made


@contextmanager
def postgresql() -> Iterator[int]:
    """Its port. The user is `bank`, without a password."""
    programs = max(POSTGRESQL.glob("*/bin/initdb"), default=POSTGRESQL, key=lambda path: path.parts[-3].zfill(4)).parent
    if not (programs / "postgres").exists():
        pytest.skip(f"no PostgreSQL in {POSTGRESQL}: apt-get install postgresql")
    port = free_port()
    with _directory() as folder:
        _run(programs / "initdb", "-D", folder, "-U", "bank", "-A", "trust", "--no-sync", at=folder)
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        url = f"postgresql://bank@127.0.0.1:{port}/postgres"
        with _serving(programs / "postgres", "-D", folder, *words, at=folder, answers=lambda: psycopg.connect(url)):
            yield port


@contextmanager
def mariadb() -> Iterator[int]:
    """Its port. The user is `root`, without a password."""
    if not MARIADB.exists():
        pytest.skip(f"no MariaDB at {MARIADB}: apt-get install mariadb-server")
    port = free_port()
    with _directory() as folder:
        place = ("--no-defaults", f"--datadir={folder}/data")
        _run("mariadb-install-db", *place, "--auth-root-authentication-method=normal", "--skip-test-db", at=folder)
        options = (
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
        )

        def answers() -> object:
            return pymysql.connect(host="127.0.0.1", port=port, user="root")

        with _serving(MARIADB, *place, *options, "--innodb-flush-log-at-trx-commit=0", at=folder, answers=answers):
            yield port


@contextmanager
def _directory() -> Iterator[Path]:
    """One of the user. pytest's belong to root only."""
    folder = Path(tempfile.mkdtemp(prefix="database-"))
    if USER:
        shutil.chown(folder, USER["user"], USER["group"])
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(*command: object, at: Path) -> None:
    ended = subprocess.run([*map(str, command)], cwd=at, capture_output=True, text=True, check=False, **USER)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@contextmanager
def _serving(*command: object, at: Path, answers: Callable[[], Any]) -> Iterator[None]:
    with (at / "log").open("wb") as log:
        server = subprocess.Popen(
            [*map(str, command)],
            cwd=at,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=terminate_with_parent(),
            **USER,
        )

    def is_up() -> bool:
        assert server.poll() is None, (at / "log").read_text(errors="replace")
        try:
            answers().close()
        except (psycopg.OperationalError, pymysql.OperationalError):
            return False
        return True

    try:
        until(is_up)
        yield
    finally:
        server.send_signal(signal.SIGINT if "postgres" in str(command[0]) else signal.SIGTERM)
        server.wait(60)
