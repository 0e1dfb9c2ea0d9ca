"""The plan of a sandbox, read from the command line.

Every port in the plan was free a moment ago; a requested port that is in use is an error.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chatlanes.sandbox.data import USUAL
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


def plan_from(arguments: Sequence[str] | None = None) -> Plan:
    """Raises PlanError; ends the process for --help and for arguments that argparse refuses."""
    options = _parser().parse_args(arguments)
    if min(options.chats, 1 if options.workers is None else options.workers) < 1 or (options.rate or 0) < 0:
        raise PlanError("--chats and --workers must be at least 1 and --rate at least 0.")
    return Plan(
        bot=options.bot,
        chats=options.chats,
        rate=0.0 if options.no_stream else options.rate,
        workers=options.workers,
        reload=options.reload,
        pool=options.pool,
        concurrency=options.concurrency,
        data=options.data,
        log_level=options.log_level,
        redis_port=_port("--port-redis", options.port_redis, REDIS_PORT),
        simulator_port=_port("--port-simulator", options.port_simulator, SIMULATOR_PORT),
        flower_port=_port("--port-flower", options.port_flower, FLOWER_PORT),
    )


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chatlanes sandbox",
        description="Everything on this machine: Redis, poller, worker and Flower, stopped together by Ctrl-C. "
        "With BOT_TOKEN set (environment or .env) it serves that bot; without one, a simulator of the Bot API.",
    )
    parser.add_argument(
        "--bot",
        metavar="MODULE:ATTR",
        help="the bot, instead of BOT (default: chatlanes.demo.tour:bot, which demonstrates the guarantees)",
    )
    stream = parser.add_argument_group("simulated chats, without BOT_TOKEN")
    stream.add_argument("--chats", type=int, default=10, help="number of chats (default: %(default)s)")
    stream.add_argument(
        "--rate",
        type=float,
        help=f"updates per second, over all chats (default: {USUAL_RATE:g}, and 0 for a bot of your own)",
    )
    stream.add_argument("--no-stream", action="store_true", help="only the updates of the page")
    worker = parser.add_argument_group("workers")
    worker.add_argument(
        "--workers",
        type=int,
        help="number of workers (default: 2, so that one continues when the other is killed; 1 with BOT_TOKEN)",
    )
    worker.add_argument("--reload", action="store_true", help="restart them when a Python file in this folder changes")
    worker.add_argument("--pool", choices=["prefork", "threads", "gevent", "solo"], help="(default: prefork)")
    worker.add_argument(
        "--concurrency",
        type=int,
        help="processes, threads or greenlets of each (default: the processors, divided among the workers)",
    )
    worker.add_argument("--log-level", default="WARNING", help="INFO shows every update (default: %(default)s)")
    _add_places(parser)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    places = parser.add_argument_group("data and ports")
    places.add_argument(
        "--data",
        type=Path,
        default=USUAL,
        metavar="DIR",
        help="folder for the embedded Redis and the page's chats (default: %(default)s)",
    )
    places.add_argument("--port-redis", type=int, metavar="PORT", help=f"(default: {REDIS_PORT} or the next free one)")
    places.add_argument("--port-simulator", type=int, metavar="PORT", help=f"(default: {SIMULATOR_PORT} or the next)")
    places.add_argument("--port-flower", type=int, metavar="PORT", help=f"(default: {FLOWER_PORT} or the next)")
