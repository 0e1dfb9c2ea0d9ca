"""The processes that need Redis and the Bot API: their commands and their environment."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from chatlanes.sandbox.plan import Plan
from chatlanes.sandbox.ports import HOST, NAMES
from chatlanes.settings.spelling import CHECKED

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
        parts.append(Part("report", (*PYTHON, "chatlanes.sandbox.report", *report), is_status=True))
    return parts


def _share(workers: int) -> int:
    """The processors for each of several workers."""
    return min(max((os.cpu_count() or 1) // workers, 2), 4)


def _worker(plan: Plan, name: str, concurrency: int | None) -> tuple[str, ...]:
    command = [*PYTHON, "chatlanes.sandbox.worker", *CELERY, "worker", "-n", f"{name}@%h", "-E", "-l", plan.log_level]
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
