"""One system: its server, its workers, its producer. Each is in a folder of systems/, with the files of its users.

A command may contain {bin} (the programs of the system's Python packages), {modules} (its Node packages), {url} (of the
server), {worker} (the number of the worker) and {part} (the number of a process within its worker).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.ordered.servers import Server
from bench.systems import install

HERE = Path(__file__).resolve().parent
#: Messages that a worker may run at a time, and workers.
SLOTS, WORKERS = 16, 2

#: In this order in every table.
NAMES = (
    "celery_lanes",
    "stock_celery",
    "celery_rabbitmq",
    "dramatiq",
    "taskiq",
    "huey",
    "procrastinate",
    "dbos",
    "bullmq",
    "groupmq",
    "restate",
    "nats",
)
#: Systems that people ask for and that do not take part, with the reason.
ABSENT: Mapping[str, str] = {
    "Temporal": "the registries have its development server only, on SQLite, which warns that it is not for production",
    "BullMQ Pro (groups)": "a paid edition in a registry of its own",
    "SQS FIFO": "a service; there is no server to start on the same machine",
    "Pulsar, Oban, pgmq": "neither PyPI, npm nor Debian has the server, or the PostgreSQL extension",
}


@dataclass(frozen=True)
class System:
    """`claims` is what its documentation promises for a key; `setup` runs once;
    `avoid` names the setting against its faults.
    """

    title: str
    claims: str
    pages: Sequence[str]
    server: Callable[[Path, int], Server]
    worker: Sequence[str]
    producer: Sequence[str]
    setup: Sequence[str] = ()
    python: Sequence[str] = ()
    node: Sequence[str] = ()
    processes: int = 1
    avoid: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def load(name: str) -> System:
    found = importlib.import_module(f"bench.ordered.systems.{name}.system").SYSTEM
    assert isinstance(found, System)
    return found


def programs(name: str, system: System) -> dict[str, str]:
    """Installs its packages when it is first used; without packages it runs in the project's own environment."""
    own = Path(sys.executable).parent
    return {
        "bin": str(install.python(name, system.python) if system.python else own),
        "modules": str(install.node(name, system.node)) if system.node else "",
    }


def folder(name: str) -> Path:
    return HERE / "systems" / name
