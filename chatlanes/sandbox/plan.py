"""The plan of a sandbox, from the options of its command.

Every port in the plan was free a moment ago; a requested port that is in use is an error.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chatlanes.sandbox.ports import HOST, is_free, next_free_port

REDIS_PORT = 6379
SIMULATOR_PORT = 8081
FLOWER_PORT = 5555
#: Updates per second of the demonstration: little enough for two processors that also run a browser.
USUAL_RATE = 5.0
#: The bot if none is named: it has a button for each guarantee.
TOUR = "chatlanes.demo.tour:bot"


class PlanError(ValueError):
    """One sentence: what to change."""


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
    """The plan of these options. Raises PlanError for a port in use."""
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
        return next_free_port(usual)
    if not is_free(wanted):
        raise PlanError(f"Port {wanted} on {HOST} is in use; choose another with {option}, or leave it out.")
    return wanted
