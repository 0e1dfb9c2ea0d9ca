"""The app that a command works on, its Redis, and what a package that builds on lanes changes about the commands.

Exit codes: 0; 1 if a check fails or nothing is found; 2 for an invalid argument.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from functools import cached_property, wraps
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import click
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from celery_lanes.cli.formatting import MOST_OF_A_TITLE, address, one_line, visible
from celery_lanes.cli.group import Group, filled
from celery_lanes.errors import LanesError, PublishRefused, complaint
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record
from celery_lanes.protocol import Store, StoredTimer, check_lanes, keys
from celery_lanes.protocol.keys import group_of
from celery_lanes.transport.routing import is_lane_queue
from celery_lanes.words import NEUTRAL, Words

#: The errors of a disk without room for the output.
FULL = (ENOSPC, EDQUOT)
COMMANDS = ("adopt", "check", "dead", "lane", "metrics", "outbox", "pausing", "status", "timers")


class CommandError(click.ClickException):
    """Ends the command with one sentence and exit code 1. The traceback of its cause, if there is one, is shown before
    it.
    """

    def show(self, file: Any = None) -> None:
        click.echo(visible(self.format_message()), file=sys.stderr)


def not_written(error: OSError) -> CommandError:
    """Output met a full disk. What is left of it is discarded: Python would try to write it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CommandError(f"the output cannot be written: {error.strerror}")


class NoAnswerError(CommandError):
    """Redis does not answer."""


@dataclass
class Context:
    """One command line. A package that builds on lanes overrides what differs in its apps."""

    app: Any

    words: ClassVar[Words] = NEUTRAL
    #: Of the whole group, and of commands whose help says more than their words.
    help: ClassVar[Mapping[str, str]] = {}
    #: They end a command with their sentence.
    errors: ClassVar[tuple[type[Exception], ...]] = (LanesError,)
    #: In the owners of timers that are not named by their lane: those of tasks with an eta.
    unnamed_owners: ClassVar[str] = "task "
    #: Timers from this time on are records that are never due.
    never_ms: ClassVar[float] = float("inf")

    @classmethod
    def group(cls) -> Group:
        """The commands in the words of this class."""
        for module in COMMANDS:
            import_module(f"celery_lanes.cli.{module}")
        made = filled(lanes, cls.words)
        assert isinstance(made, Group)  # noqa: S101 - a copy of one
        made.callback = click.pass_context(cls._begin)
        cls.extend(made)
        for path, text in cls.help.items():
            command: Any = made
            for name in path.split():
                command = command.commands[name]
            command.help = text
        return made

    @classmethod
    def extend(cls, group: Group) -> None:
        """Add further commands, or replace some."""

    @classmethod
    def _begin(cls, ctx: click.Context) -> None:
        if not hasattr(ctx.obj.app, "lanes"):
            if ctx.obj.app.main == "default":  # Celery's own
                raise CommandError("no app is named: use celery -A shop lanes …, with the module of your app")
            raise CommandError("this app has no lanes: call celery_lanes.install(app) where it is created")
        ctx.obj = cls(ctx.obj.app)

    # -- Redis

    @cached_property
    def store(self) -> Store:
        store: Store = self.app.lanes.store
        return store

    def check_broker(self) -> None:
        """Raises CommandError for a broker URL that no client can be made of."""
        try:
            _ = self.store
        except (ValueError, KeyError) as error:  # of urllib, kombu, redis-py and connection.py
            raise CommandError(
                f"the broker of this app must be Redis, such as redis://127.0.0.1:6379/0: {error.args[0]}"
            ) from None

    @property
    def client(self) -> Redis:
        return self.store.client

    @property
    def place(self) -> str:
        """The address of Redis, without its password."""
        connection = self.app.connection_for_write()
        nodes = [urlsplit(url) for url in connection.alt or [connection.as_uri(include_password=True)]]
        port = connection.get_transport_cls().default_port
        return ", ".join(
            address(unquote(node.hostname), node.port or port) if node.hostname else node.path for node in nodes
        )

    def no_answer(self, error: RedisError) -> str:
        """The sentence for a Redis that does not answer, or answers with an error."""
        why = complaint(error).rstrip(".")
        if isinstance(error, ResponseError):
            return f"Redis at {self.place} answers with an error: {why}."
        return f"Redis at {self.place} does not answer: {why}."

    def traceback_of(self, error: BaseException) -> str:
        return "".join(traceback.format_exception(error))

    def say(self, sentence: str) -> None:
        """Print a line of a command that runs on."""
        click.echo(sentence)

    # -- queues and their groups

    @cached_property
    def queues(self) -> list[tuple[str, str]]:
        """(group, queue) of each lane queue of the app."""
        queues = self.app.amqp.queues
        queues.add_own()
        declared = [each for each in queues.values() if is_lane_queue(each)]
        return [(group_of(queue.name), queue.name) for queue in declared]

    @cached_property
    def names(self) -> dict[str, str]:
        """The display name of each queue group."""
        return {group: group for group, _ in self.queues}

    def check_queue(self, queue: str) -> None:
        """Raises CommandError unless it is a lane queue of the app."""
        known = [name for _, name in self.queues]
        if queue not in known:
            raise CommandError(f"there is no lane queue {queue}: the queues are {', '.join(known)}")

    # -- lanes

    def checked_lane(self, text: str) -> str:
        """An argument that selects lanes. Raises BadParameter."""
        return text  # a key may begin or end with a space

    def is_of(self, lane: str, selected: str) -> bool:
        """True if `selected`, as the user wrote it, includes this lane."""
        return lane == selected

    # -- runs of several messages

    def run_of(self, message_id: str) -> Record | None:
        """The record of this message, or of the run that it belongs to. None: there is neither."""
        return next(inspection.records(self.client, [message_id]), None)

    def ids_of(self, record: Record) -> list[str]:
        """The ids that are known of the messages of a run, the oldest first."""
        return [record.id]

    # -- timers

    def is_timer_of_group(self, timer: StoredTimer, group: str | None) -> bool:
        """`group`: a display name; None: any."""
        return group is None or self.names.get(group_of(timer.queue)) == group

    def timers_of_group(self, group: str) -> list[StoredTimer]:
        found = self.store.timers(*self.store.timer_owners(""))
        return [timer for timer in found if self.is_timer_of_group(timer, group)]

    def names_with(self, timer: StoredTimer) -> tuple[str, ...]:
        """The names of the timers that are cancelled with this one."""
        return (timer.name,)

    def timers_of(self, selected: str) -> list[StoredTimer]:
        """The timers of a lane, the next one first. Scans the names of all timers."""
        glob = keys.literal(selected)
        owners = {
            entry.decode().partition("\n")[0]
            for pattern in (f"*{glob}*", f"*{self.unnamed_owners}*")
            for entry, _ in self.client.zscan_iter(keys.TIMERS, pattern, count=1000)
        }
        possible = sorted(each for each in owners if self.unnamed_owners in each or self.is_of(each, selected))
        return [
            timer
            for timer in self.store.timers(*possible)
            if self.is_of(timer.owner, selected) or any(self.is_of(lane, selected) for lane in timer.lanes)
        ]

    # -- what other packages add

    @property
    def replicas(self) -> int:
        """How many replicas appends wait for."""
        return 0

    @property
    def counters(self) -> Mapping[str, str]:
        """The help of counters of `metrics` that says more than that of any app."""
        return {}

    def notices(self) -> tuple[list[str], dict[str, Any]]:
        """Further lines of `status`, and what its JSON has for them."""
        return [], {}

    def checks(self, of_workers: Iterator[Any]) -> Iterator[Any]:
        """The findings of `check` about processes; those about workers are among them."""
        yield from of_workers

    def metrics(self) -> Iterable[Any]:
        """Further families for `metrics`."""
        return ()


def _callback() -> None:
    """Replaced by that of the class (Context.group)."""


#: The commands before words are filled in.
lanes = Group(
    "lanes",
    callback=_callback,
    help="Show the lanes, handle buried {message}s, pause and resume, check the deployment.",
)


def command(
    name: str, group: click.Group | None = lanes, **options: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorates a function of a Context and its own arguments as a sub-command; without a group, of a later one."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(ctx: click.Context, **arguments: Any) -> None:
            _check_texts(arguments)
            try:
                ctx.obj.check_broker()
                function(ctx.obj, **arguments)
            except RedisError as error:
                raise NoAnswerError(ctx.obj.no_answer(error)) from None
            except ctx.obj.errors as error:
                raise CommandError(str(error)) from None
            except CommandError as error:
                if error.__cause__ is not None:
                    click.echo(visible(ctx.obj.traceback_of(error.__cause__)), err=True)
                raise
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise not_written(error) from None

        make = click.command if group is None else group.command
        made: click.Command = make(name, **options)(click.pass_context(run))
        return made

    return decorate


def _check_texts(arguments: Mapping[str, Any]) -> None:
    """Raises UsageError for an argument that is not UTF-8: no key, id or queue is."""
    for value in arguments.values():
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and re.search("[\ud800-\udfff]", text):
                raise click.UsageError(f"{text!r} is not UTF-8 text")


# -- selecting messages by lane and group


def wanted(lanes: Context, selected: str | None, group: str | None) -> Callable[[Record], bool]:
    """A predicate that selects the messages of a lane and a group. Raises CommandError for an unknown group."""
    words = lanes.words
    if group is not None and group not in lanes.names.values():
        known = ", ".join(dict.fromkeys(lanes.names.values()))
        raise CommandError(f"--{words.group} {group}: there is no such {words.group}; the {words.group}s are {known}")

    def is_wanted(record: Record) -> bool:
        in_lane = selected is None or any(lanes.is_of(lane, selected) for lane in (*record.lanes, *record.limits))
        return in_lane and (group is None or lanes.names.get(record.group) == group)

    return is_wanted


def in_order(found: Iterable[Record]) -> list[Record]:
    """The messages in the order in which they were appended."""
    return sorted(found, key=lambda record: record.appended_us)


def with_size(title: str, record: Record) -> str:
    """The title of the first message of a run, shortened, and how many were collected with it."""
    shown = one_line(title, MOST_OF_A_TITLE)
    return shown if record.size == 1 else f"{shown}, and {record.size - 1} more"


#: Keeps click from taking -1001234 for an option. No argument of a process contains it.
_KEY_MARK = "\0"


class OfLane(click.Command):
    """A command whose argument is a lane: -1001234 is a key, not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_KEY_MARK + arg if re.fullmatch(r"-\d+", arg) else arg for arg in args])


def _lane(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if not value:
        raise click.BadParameter("it is empty")
    lane: str = ctx.obj.checked_lane(value.removeprefix(_KEY_MARK))
    try:
        check_lanes([lane])
    except PublishRefused as error:
        raise click.BadParameter(error.message) from None
    return lane


lane_argument = click.argument("lane", metavar="{lane}", callback=_lane)
lane_option = click.option("--{lane}", "lane", metavar="{lane}", callback=_lane, help="Only this {lane}: {lane_help}.")
group_option = click.option("--{group}", "group", metavar="NAME", help="Only this {group}.")
