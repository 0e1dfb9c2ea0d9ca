"""`chatlanes worker` and `chatlanes flower`: Celery's commands with help for bots.

Each option has a sentence, and `chatlanes flower` refuses those that Flower would ignore. `celery -A chatlanes worker`
and `… flower` are unchanged.
"""

from __future__ import annotations

from typing import Any

import click
from celery.bin.worker import WorkersPool

_SETTINGS = """come from the environment, or from the file .env in this folder; `chatlanes settings` describes them."""

WORKER = f"""Run the bot on updates from the lanes: a Celery worker.

BOT names the bot: mybot:handle is `handle` in mybot.py of this folder. BOT, BOT_TOKEN (or BOTS), REDIS_URL and all
other settings {_SETTINGS}

Start any number of workers on any machines, each with a name of its own. Ctrl-C or SIGTERM ends one: it finishes the
updates that run, and the others go to other workers.

\b
    chatlanes worker -n one@%h
    chatlanes worker -n two@%h -P threads -c 32 -l INFO
"""

FLOWER = f"""Show workers and updates in the browser: Flower.

REDIS_URL and all other settings {_SETTINGS} Without a password of yours, Flower prints a random one.

\b
    chatlanes flower
    chatlanes flower --port=8888 --basic-auth=ann:secret

Each option may also be a variable of the environment: FLOWER_BASIC_AUTH=ann:secret.
"""

#: For options of the worker that Celery does not describe, or describes for other apps.
WORKER_OPTIONS = {
    "hostname": "Name of the worker, such as one@%h; %h is the name of the machine. Default: celery@%h.",
    "loglevel": "The lowest level to log; INFO has a line for each update. Default: WARNING.",
    "concurrency": "Slots: how many updates run at once. Default: the CPUs; auto: those that a container may use.",
    "pool": "What the slots are: processes (prefork), threads, greenlets (gevent), or only one (solo).",
    "purge": "Delete the updates that wait in its queues, before it starts. They are lost.",
    "queues": "Read only these queues, such as updates.0,updates.1.",
    "exclude_queues": "Read all queues except these.",
    "include": "Import these modules too, for tasks of your own.",
    "without_gossip": "Do not listen to events of other workers.",
    "without_mingle": "Do not ask other workers for their state at the start.",
    "without_heartbeat": "Do not send heartbeat events. Leases are renewed all the same.",
    "heartbeat_interval": "Seconds between two heartbeat events.",
    "autoscale": "The most and the fewest slots; they follow the load.",
    "beat": "Run Celery beat too, for tasks of your own. The schedules of a bot (SCHEDULES) do not need it.",
    "schedule_filename": "The file in which beat keeps its schedule.",
    "scheduler": "The class of beat's scheduler.",
}

#: For options of Flower, the same.
FLOWER_OPTIONS = {
    "port": "The port to listen on.",
    "address": "The address to listen on, such as 127.0.0.1. Default: all addresses of this machine.",
    "basic-auth": "The login, name:password; several are separated by commas.",
    "auth": "Who may log in through --auth-provider: a regular expression of e-mail addresses.",
    "auto-refresh": "Refresh the list of workers.",
    "logging": "The lowest level to log: debug, info, warning, error or none.",
}
#: Options whose default is not one value.
NO_DEFAULT = ("basic-auth", "cookie-secret", "task-runtime-metric-buckets")


def describe_worker(worker: click.Command) -> None:
    """Replaces the help of Celery's command, which lists a pool that lanes do not support: eventlet."""
    worker.help = WORKER
    for option in worker.params:
        if isinstance(option, click.Option):
            option.help = WORKER_OPTIONS.get(str(option.name), (option.help or "").replace("%%", "%"))
            if isinstance(option.type, WorkersPool):
                option.type.choices = [pool for pool in option.type.choices if pool != "eventlet"]


def flower_command(plain: click.Command) -> click.Command:
    """Flower's command, with the options that Flower reads itself from any arguments. It ignores those it has not."""
    import flower.options  # noqa: F401 - defines them
    from tornado.options import options

    def start(**given: str | None) -> None:
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
        assert plain.callback  # noqa: S101 - it is a function
        plain.callback(tornado_argv=arguments)

    found = [_flower_option(name, option) for name, option in options._options.items() if name != "help"]
    return click.Command(
        "flower",
        callback=start,
        params=[*found],
        help=FLOWER,
        context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    )


def _flower_option(name: str, option: Any) -> click.Option:
    means = FLOWER_OPTIONS.get(name, f"{option.help[0].upper()}{option.help[1:]}")
    if option.default and name not in NO_DEFAULT:
        means += f"  [default: {option.default}]"
    is_flag = option.type is bool
    return click.Option(
        [f"--{name}"],
        type=option.type if option.type in (int, float) and not option.multiple else str,
        metavar="[true|false]" if is_flag else None,
        is_flag=False,
        flag_value="true" if is_flag else None,
        help=means,
        hidden=name.startswith("log-"),  # of Tornado
    )
