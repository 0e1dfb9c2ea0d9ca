"""The plan of a sandbox, from the options of its command: ports, processes, and their environment.

Every port in the plan was free a moment ago, and no other sandbox of this machine gets it while this process lives,
unless it was requested. A requested port that is in use is an error.
"""

import atexit
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from celery_lanes.embedded_server import HOST, free_port, is_free
from chatlanes.settings.spelling import CHECKED
from chatlanes_sandbox.simulator.client import NAMES

REDIS_PORT = 6379
SIMULATOR_PORT = 8081
FLOWER_PORT = 5555
#: Updates per second of the demonstration: little enough for two processors that also run a browser.
USUAL_RATE = 5.0
#: The bot if none is named: it has a button for each guarantee.
TOUR = "chatlanes.demo.tour:bot"


class StartError(RuntimeError):
    """Something cannot start; one sentence for the user."""


@dataclass(frozen=True)
class Plan:
    """`rate` is updates per second, over all chats; 0: no stream; None: the default for the bot. `data` is a folder.

    `workers` None: the default for the bot. `reload`: the workers restart when the bot was edited.
    """

    bot: str | None
    chats: int
    rate: float | None
    workers: int | None
    reload: bool
    pool: str | None
    concurrency: int | None
    data: Path
    log_level: str
    redis_port: int
    simulator_port: int
    flower_port: int

    @property
    def redis_data(self) -> Path:
        return self.data / "redis"

    @property
    def page_data(self) -> Path:
        return self.data / "page.sqlite3"


def plan_from(*, no_stream: bool, rate: float | None, **options: Any) -> Plan:
    """The plan of these options. Raises StartError for a port in use."""
    for name, usual in (("redis", REDIS_PORT), ("simulator", SIMULATOR_PORT), ("flower", FLOWER_PORT)):
        options[f"{name}_port"] = _port(f"--port-{name}", options.pop(f"port_{name}"), usual)
    return Plan(rate=0.0 if no_stream else rate, **options)


def with_a_bot(plan: Plan, *, is_named: bool) -> Plan:
    """The plan with a bot for the simulator. A bot of the user's own has no stream by default; the tour has one."""
    if is_named:
        return replace(plan, rate=plan.rate or 0.0)
    return replace(plan, bot=TOUR, rate=USUAL_RATE if plan.rate is None else plan.rate)


def _port(option: str, wanted: int | None, usual: int) -> int:
    """The requested port, or the usual one, or the next free one."""
    if wanted is None:
        return next((port for port in range(usual, usual + 100) if is_free(port) and _claim(port)), 0) or free_port()
    if not is_free(wanted):
        raise StartError(f"Port {wanted} on {HOST} is in use; choose another with {option}, or leave it out.")
    return wanted


def _claim(port: int) -> bool:
    """True if this process has the port now, until it ends; two sandboxes that start together may both find it free.

    Sandboxes do not use UDP: the holder of a UDP port may use the TCP port.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        held.bind((HOST, port))
    except OSError:
        held.close()
        return False
    atexit.register(held.close)
    return True


# ── the processes that need Redis and the Bot API ──

PYTHON = (sys.executable, "-m")
#: With two, one continues when the other is killed.
SIMULATED_WORKERS = 2
FLOWER_USER = "admin"
CELERY = ("--quiet", "-A", "chatlanes")


@dataclass(frozen=True)
class Part:
    """A process that runs until it is stopped."""

    name: str
    command: tuple[str, ...]
    is_worker: bool = False
    #: Its lines replace each other in a terminal.
    is_status: bool = False


def parts_of(plan: Plan, report: tuple[str, ...] | None) -> list[Part]:
    """`report` are the arguments of sandbox.report; None: no report, because the bot is a real one."""
    count = plan.workers or (1 if report is None else SIMULATED_WORKERS)
    names = [f"worker{number}" for number in range(1, count + 1)] if count > 1 else ["worker"]
    concurrency = plan.concurrency or (None if count == 1 else _share(count))
    parts = [
        Part("poller", (*PYTHON, "chatlanes.poller")),
        *(Part(name, _worker(plan, name, concurrency), is_worker=True) for name in names),
        Part("flower", _flower(plan)),
    ]
    if report is not None:
        parts.append(Part("report", (*PYTHON, "chatlanes_sandbox.report", *report), is_status=True))
    return parts


def _share(workers: int) -> int:
    """The processors for each of several workers."""
    return min(max((os.cpu_count() or 1) // workers, 2), 4)


def _worker(plan: Plan, name: str, concurrency: int | None) -> tuple[str, ...]:
    command = [*PYTHON, "chatlanes_sandbox.worker", *CELERY, "worker", "-n", f"{name}@%h", "-E", "-l", plan.log_level]
    if plan.pool:
        command += ["-P", plan.pool]
    if concurrency:
        command += ["-c", str(concurrency)]
    return tuple(command)


def _flower(plan: Plan) -> tuple[str, ...]:
    # Its warnings are about workers that have not started yet.
    return (*PYTHON, "celery", *CELERY, "flower", f"--address={HOST}", f"--port={plan.flower_port}", "--logging=error")


def environment_of(
    environ: Mapping[str, str],
    *,
    bot: str | None = None,
    supplied: Mapping[str, str] = MappingProxyType({}),
    flower_login: str | None = None,
) -> dict[str, str]:
    """The environment of every part; None leaves a setting as it is. `supplied` are the settings of the servers that
    the sandbox has started, `flower_login` is user:password.
    """
    environment = {**environ, **supplied}
    environment["PYTHONUNBUFFERED"] = "1"  # otherwise their lines arrive in bursts
    environment[CHECKED] = "1"  # the sandbox has reported likely mistakes in the settings
    if bot is not None:
        environment["BOT"] = bot
    environment["FLOWER_HOSTS"] = ",".join(sorted(NAMES))
    if flower_login is not None:
        environment["FLOWER_BASIC_AUTH"] = flower_login
    return environment


def flower_login_of(environ: Mapping[str, str]) -> str | None:
    """A login for this run. Without one, any page open in a browser on this machine could use Flower's API. None: the
    environment sets one.
    """
    if environ.get("FLOWER_BASIC_AUTH") or environ.get("FLOWER_AUTH"):
        return None
    return f"{FLOWER_USER}:{secrets.token_urlsafe(12)}"
