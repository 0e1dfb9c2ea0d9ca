"""Lane keys from arguments: the `lane` of a task, or of its route, gives each message its keys.

Guarantees that a message of a task with a lane has the keys that the lane makes of its arguments, in whatever way it is
published through the app, or is refused. Keys that the publisher passes itself (lanes.headers) win. A message of a task
without a lane is routed as in Celery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from inspect import Parameter, Signature, ismethod, signature
from typing import Any

from celery import Celery
from celery.app.amqp import Queues
from celery.app.routes import MapRoute, Router
from kombu import Exchange, Queue

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import Limited, Paced, check_lanes, envelope
from celery_lanes.transport.publish import key_headers, with_limits
from celery_lanes.transport.transport import LANES_ARGUMENT, QUEUE_ARGUMENTS

#: A template or several, or a function that is called with the arguments of the task and returns a key, keys or None.
Lane = str | Sequence[str] | Callable[..., str | Sequence[str] | None]
#: Of a message, by name and by position.
Arguments = dict[str | int, Any]

#: An argument in a template: `{customer}`, `{0}`, `{order[customer]}`, `{id!s}`.
_FIELD = re.compile(r"\{(\w+)((?:\[[^\][{}]+\])*)(!s)?\}")
#: Their messages run another task several times, with arguments that a lane cannot use.
_REPEATING = {"celery.map", "celery.starmap"}
#: Celery publishes it to the queue of a chord's body, with its headers. In the lane of the body it would wait for tasks
#: behind it.
_CHORD_UNLOCK = "celery.chord_unlock"
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def lane_of(task: Any) -> Lane | None:
    """The lane of a task. A function is not a method: it gets the arguments only."""
    lane = getattr(task, "lane", None)
    return lane.__func__ if ismethod(lane) and lane.__self__ is task else lane


class LaneRouter(Router):
    """Celery's router; it also turns lanes into keys."""

    def route(
        self, options: dict[str, Any], name: str, args: Any = (), kwargs: Any = None, task_type: Any = None
    ) -> dict[str, Any]:
        if "lane" in options:
            raise PublishRefused(
                f"lane= is an option of the task {name} and of its route. For the keys of one message, pass "
                "headers=lanes.headers([…])"
            )
        is_named = any(options.get(each) for each in ("queue", "exchange", "routing_key"))
        # Celery asks for the queue of a chord's body (Backend.fallback_chord_unlock), which has no arguments yet.
        asks_for_queue = "result" in options and kwargs is None
        routed: dict[str, Any] = super().route(options, name, args, kwargs, task_type)
        if name == _CHORD_UNLOCK:
            return _without_lane(routed)
        repeats = not _REPEATING.isdisjoint((name, getattr(task_type, "name", name)))
        if name in _REPEATING:  # in a group, Celery does not route them by the task that they run
            name = kwargs["task"]["task"]
        task = self._task(name) or task_type
        of_route = routed.pop("lane", None)
        lane = of_route if lane_of(task) is None else lane_of(task)
        headers = routed.get("headers") or {}
        keys = headers.get(envelope.LANE_KEYS)
        if keys is None and lane is not None:
            if repeats and not _is_constant(lane):
                raise PublishRefused(
                    f"{name} has a lane, and map, starmap and chunks are one message with the arguments of many: use a "
                    "group"
                )
            keys = [] if asks_for_queue else keys_of(lane, name, task, args or (), kwargs or {})
        if keys is not None and lane is not None:
            routed["headers"] = {**headers, **key_headers(keys)}
            if not is_named and self._is_left_to_celery(routed):
                routed["queue"] = self.lane_queue()
        elif keys is None and envelope.LANE_KEYS in headers:
            raise PublishRefused(
                f"{name} has no lane for this message, and None is not a list of lane keys: pass its keys too, "
                "lanes.headers(['customer:9'], …)"
            )
        return routed

    def query_router(self, router: Any, *message: Any) -> Any:
        """The keys that a function of task_routes returns are not templates: they may contain braces."""
        route = super().query_router(router, *message)
        if isinstance(route, dict) and route.get("lane") is not None and not isinstance(router, MapRoute):
            return {**route, "lane": partial(_constant, route["lane"])}
        return route

    def keys(self, name: str, args: Any, kwargs: Any, options: dict[str, Any], task: Any = None) -> list[str] | None:
        """The keys that a message would have; None: it has no lane. Raises PublishRefused."""
        given = (options.get("headers") or {}).get(envelope.LANE_KEYS)
        if given is not None:
            check_lanes(given)
            return with_limits(list(given), options["headers"])
        task = self._task(name) or task
        lane = lane_of(task)
        if lane is None and self.routes:
            lane = (self.lookup_route(name, args, kwargs, options, task) or {}).get("lane")
        return None if lane is None else keys_of(lane, name, task, args or (), kwargs or {})

    def _task(self, name: str) -> Any:
        """None: this program does not know it. `send_task` may be called before Celery has made the app's tasks."""
        if name not in self.app._tasks and self.app.autofinalize and not self.app.finalized:
            self.app.finalize(auto=True)
        return self.app._tasks.get(name)

    def lane_queue(self) -> Queue:
        """Where a message with a lane goes if nothing names a queue: the first lane queue of the app, or its own."""
        for queue in self.queues.values():
            if is_lane_queue(queue):
                return queue
        return self.queues[own_queue(self.app)]

    def _is_left_to_celery(self, routed: Mapping[str, Any]) -> bool:
        """True if Celery would take its default queue, and that is an ordinary one."""
        if routed.get("exchange") or routed.get("routing_key"):
            return False
        default = self.app.conf.task_default_queue
        queue = routed.get("queue") or self.queues[default]
        return queue.name == default and not is_lane_queue(queue)


def own_queue(app: Celery) -> str:
    """The name of the lane queue of an app that declares none."""
    return f"{app.conf.task_default_queue}.lanes"


def is_lane_queue(queue: Any) -> bool:
    return bool((queue.queue_arguments or {}).get(LANES_ARGUMENT))


def _without_lane(routed: dict[str, Any]) -> dict[str, Any]:
    """A message of Celery's own that goes where the message of a lane goes: it has no order."""
    headers = {
        name: value for name, value in (routed.get("headers") or {}).items() if name not in envelope.OF_PUBLISHER
    }
    if isinstance(routed.get("queue"), Queue) and is_lane_queue(routed["queue"]):
        headers[envelope.LANE_KEYS] = []
    return {**routed, "headers": headers}


class LaneQueues(Queues):
    """Celery's queues. A worker that is to read all of them also reads the queue for lanes, if a task has a lane."""

    def __init__(self, app: Celery, *args: Any, **kwargs: Any) -> None:
        self._app = app
        super().__init__(*args, **kwargs)

    def __missing__(self, name: str) -> Queue:
        """Called by Celery for a queue that is not declared. The app's own lane queue exists once something uses it."""
        if name != own_queue(self._app) or any(map(is_lane_queue, self.values())):
            return super().__missing__(name)
        return self.add(Queue(name, Exchange(""), name, queue_arguments=dict(QUEUE_ARGUMENTS)))

    def is_lane_queue(self, name: str) -> bool:
        """Also true for the app's own lane queue before something uses it. Adds no queue."""
        if name in self:
            return is_lane_queue(self[name])
        return name == own_queue(self._app) and not any(map(is_lane_queue, self.values()))

    def select(self, include: Any) -> Any:
        """Called once when a worker starts, with its queues (-Q) or nothing, before it excludes some (-X)."""
        self.add_own()
        return super().select(include)

    def add_own(self) -> str | None:
        """Add the queue for lanes, if a task or a route has a lane; its name."""
        if all(lane is None for lane in _lanes(self._app)):
            return None
        return str(self.select_add(self._app.amqp.router.lane_queue()).name)

    def missed(self) -> str | None:
        """The queue for lanes, if a worker that reads all queues may not know it yet."""
        return self.add_own() if self._consume_from is None else None

    def keys(self) -> Any:
        """Called by `celery purge`."""
        self.missed()
        return super().keys()


def _lanes(app: Celery) -> Iterator[Any]:
    """The lanes of the app's tasks and routes; a function of task_routes may return one."""
    yield from (lane_of(task) for task in app.tasks.values())
    for router in app.amqp.routes:
        if isinstance(router, MapRoute):
            routes = [*router.map.values(), *router.patterns.values()]
            yield from (route.get("lane") for route in routes if isinstance(route, Mapping))
        else:
            yield router


def keys_of(lane: Lane, name: str, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str] | None:
    """The keys that a lane makes of the arguments of a message. `task` is None in a program that does not know it.
    None: a function has returned None, and the message has no lane. Raises PublishRefused.
    """
    found: Arguments = {}
    found.update(enumerate(args))
    found.update(kwargs.items())
    if task is not None and not _is_constant(lane):
        args, kwargs, found = _bind(name, task, args, kwargs)
    if not callable(lane):
        templates: Sequence[Any] = lane if isinstance(lane, list | tuple) else [lane]
        filled = [_fill(each, name, found, is_known=task is not None) for each in templates]
        pairs = zip(filled, templates, strict=True)
        keys: Any = [_as(each, key) for key, each in pairs]
    else:
        try:
            keys = lane(*args, **kwargs)
        except TypeError as error:
            raise PublishRefused(f"the lane function of {name} does not fit the arguments: {error}") from error
        keys = [keys] if isinstance(keys, str) else keys
    if keys is not None:
        check_lanes(keys)
    return keys


def _as(template: str, key: str) -> str:
    """The key with the rate or the limit of its template."""
    if isinstance(template, Paced):
        return Paced(key, template.rate)
    return Limited(key, template.concurrency) if isinstance(template, Limited) else key


def _constant(keys: Any, *_: Any, **__: Any) -> Any:
    return keys


def _is_constant(lane: Lane) -> bool:
    """True for keys that a function of task_routes has returned."""
    return getattr(lane, "func", None) is _constant


def _bind(name: str, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Arguments]:
    """The arguments with the defaults of the task, and each of them by its name and its position."""
    known = _signature(task.run)
    try:
        bound = known.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise PublishRefused(f"{name} has a lane, and these are not its arguments: {error}") from error
    bound.apply_defaults()
    found: Arguments = {}
    for position, parameter in enumerate(known.parameters.values()):
        value = bound.arguments.get(parameter.name)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            found.update(enumerate(value or (), position))
        elif parameter.kind is Parameter.VAR_KEYWORD:
            found.update(value or {})
        elif parameter.name in bound.arguments:
            found[parameter.name] = value
            if parameter.kind in _POSITIONAL:
                found[position] = value
    return bound.args, bound.kwargs, found


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> Signature:
    return signature(function)


def _fill(template: str, name: str, found: Arguments, *, is_known: bool) -> str:
    """The key: the template with the arguments of a message."""
    if not isinstance(template, str) or re.search("[{}]", _FIELD.sub("", template)):
        raise PublishRefused(
            f"{template!r} is not a lane of {name}: use a text such as 'customer:{{customer}}', with arguments of the "
            "task in braces, or a function"
        )

    def text(field: re.Match[str]) -> str:
        argument, items, is_converted = field.groups()
        place = argument + items
        try:
            value = found[int(argument) if argument.isdecimal() else argument]
            for item in re.findall(r"\[(.*?)\]", items):
                value = value[int(item) if isinstance(value, list | tuple) else item]
        except (LookupError, TypeError, ValueError):
            raise PublishRefused(_missing(template, name, place, is_known)) from None
        if value is None:
            raise PublishRefused(
                f"{place} of {name} is None, and its lane {template!r} needs it. For a message without it, pass "
                "headers=lanes.headers([…]); an empty list means no order"
            )
        if isinstance(value, str):
            return str.__str__(value)  # of an Enum its value, as in the message
        if is_converted:
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise PublishRefused(
                f"{place} of {name} is a {type(value).__name__}, and its lane {template!r} is made of texts and "
                f"integers: write {{{place}!s}} to use its text"
            )
        return str(int(value))

    return _FIELD.sub(text, template)


def _missing(template: str, name: str, place: str, is_known: bool) -> str:
    wanted = f"the lane {template!r} of {name} needs {place}, which this message does not have"
    if is_known:
        return f"{wanted}: pass it as an argument, or pass headers=lanes.headers([…])"
    return (
        f"{wanted}: this program does not know the task and finds only arguments passed by name, or by position as "
        "{0}, {1}, …"
    )
