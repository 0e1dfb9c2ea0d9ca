"""`chatlanes sandbox`, which is also `chatlanes-sandbox run`."""

import sys
from pathlib import Path
from typing import Any

import click

from celery_lanes.cli.group import FiniteRange
from chatlanes.settings.running_sandbox import DATA
from chatlanes_sandbox.plan import FLOWER_PORT, REDIS_PORT, SIMULATOR_PORT, TOUR, USUAL_RATE

_POOLS = ("prefork", "threads", "gevent", "solo")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_COUNT = click.IntRange(1)
_PROCESSES = click.IntRange(1, 10_000)
_PORT = click.IntRange(1, 65_535)
_DEFAULT_PORT = "Default: {}, or the next free one."


@click.command("sandbox", short_help="Run everything here, with a simulated Telegram.")
@click.option(
    "--bot",
    metavar="MODULE:NAME|FILE.py",
    help=f"The bot, instead of BOT. Default: {TOUR}, with a button for each promise.",
)
@click.option("--reload", is_flag=True, help="Restart the workers when a Python file of this folder changes.")
@click.option(
    "--workers",
    type=_PROCESSES,
    metavar="N",
    help="Default: 2, so that one continues when the other is killed; 1 with BOT_TOKEN.",
)
@click.option(
    "--pool", type=click.Choice(_POOLS), metavar="POOL", help=f"Of a worker: {', '.join(_POOLS)}. Default: prefork."
)
@click.option(
    "--concurrency",
    type=_PROCESSES,
    metavar="N",
    help="Slots of a worker. Default: the processors, divided among the workers.",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    metavar="LEVEL",
    default="WARNING",
    help="Of a worker: WARNING; INFO shows every update.",
)
@click.option(
    "--rate",
    type=FiniteRange(0),
    metavar="N",
    help=f"Without BOT_TOKEN: simulated updates per second. Default: {USUAL_RATE:g}; 0 with a bot of your own.",
)
@click.option("--chats", type=_COUNT, metavar="N", default=10, show_default=True, help="Chats of these updates.")
@click.option("--no-stream", is_flag=True, help="The same as --rate 0.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=DATA,
    show_default=True,
    help="For the data of Redis and of the page.",
)
@click.option("--port-redis", type=_PORT, metavar="PORT", help=_DEFAULT_PORT.format(REDIS_PORT))
@click.option("--port-simulator", type=_PORT, metavar="PORT", help=_DEFAULT_PORT.format(SIMULATOR_PORT))
@click.option("--port-flower", type=_PORT, metavar="PORT", help=_DEFAULT_PORT.format(FLOWER_PORT))
def sandbox(**options: Any) -> None:
    """Run everything on this machine: Redis, a simulated Telegram with a page in the browser, the poller, workers and
    Flower. Ctrl-C stops all of it.

    \b
        chatlanes sandbox --bot mybot:handle --reload

    With BOT_TOKEN, from the environment or from the file .env in this folder, it serves that bot at Telegram, without
    a page. With REDIS_URL it uses that Redis. All other settings work too; `chatlanes settings` describes them.
    """
    from chatlanes_sandbox.run import run_command

    sys.exit(run_command(options))
