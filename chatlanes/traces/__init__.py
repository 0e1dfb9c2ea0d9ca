"""Traces of updates, by OpenTelemetry: from the poller or receiver through the handler to each Bot API call.

Guarantees that nothing of OpenTelemetry is imported, and nothing stored with an update, unless its own variables
(OTEL_…) configure it, and that no trace holds the text of a message or a token. A trace that could not be sent is
lost: only the end of a process waits for a collector, and that briefly. An error in the configuration is logged in one
sentence and stops nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from celery_lanes import Delivery
from celery_lanes.protocol import Appended
from chatlanes.logs.ids import with_traces
from chatlanes.settings import Settings
from chatlanes.settings.reading import variables

log = logging.getLogger("chatlanes")

PREFIX = "OTEL_"
_SAY_WHERE = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Ending(NamedTuple):
    """The fields that a span records of the error that ended it, and the error itself if it was a failure."""

    fields: Mapping[str, Any]
    failure: BaseException | None


#: Reads the error that ended a span. The callers know what their errors mean; traces do not.
Describe = Callable[[BaseException], Ending]


class NoSpan:
    """The span of one run of a handler, of one call of the Bot API, or of one step."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None: ...

    def set(self, **fields: Any) -> None:
        """Set fields of the span; those that are None are left out."""


class NoBatch(NoSpan):
    """The span of one append."""

    def header(self, message_id: str, queue: str, shown: str, problem: str = "") -> str:
        """A header, stored with an update so that its run belongs to the same trace; empty: none."""
        return ""

    def appended(self, answer: Appended) -> None: ...


NO_SPAN, NO_BATCH = NoSpan(), NoBatch()


class Traces:
    """The traces of one process. These do nothing: OpenTelemetry is not configured (otel.py)."""

    def appending(self) -> NoBatch:
        """A context manager for the append of a batch; `appended` is called with its outcome."""
        return NO_BATCH

    def running(self, request: Any, update: Any, delivery: Delivery | None, describe: Describe) -> NoSpan:
        """A context manager for one run of an update; `request` is Celery's, `update` the bot's Context."""
        return NO_SPAN

    def calling(self, method: str, chat: int | str | None, url: str, describe: Describe) -> NoSpan:
        """A context manager for a call of the Bot API, its waits included."""
        return NO_SPAN

    def stepping(self, name: str, describe: Describe) -> NoSpan:
        """A context manager for a step (ctx.step), from its begin in the journal to its outcome there."""
        return NO_SPAN

    def event(self, name: str, **fields: Any) -> None:
        """Add an event to the current span."""

    def ids(self) -> dict[str, str]:
        """The current `trace_id` and `span_id`, for the log."""
        return {}

    def stop(self, within_s: float) -> None:
        """Send the remaining spans."""


OFF = Traces()
_here = OFF


def here() -> Traces:
    """The traces of this process."""
    return _here


def start(part: str, settings: Settings, instance: str = "") -> None:
    """Start the traces of a process named `part`: poller, receiver, worker. Repeated calls are harmless. Its children
    inherit the traces, and each sends its own spans.
    """
    global _here
    _set_variables()
    if here() is not OFF or not (are_wanted(os.environ) or are_set_up()):
        return
    try:
        from chatlanes.traces.otel import Otel

        _here = Otel(part, settings, instance)
    except ImportError as error:
        log.error("no traces, for OTEL_… is set and %s is not here: pip install 'chatlanes[opentelemetry]'", error.name)
        return
    except ValueError as error:
        log.error("no traces: %s", error)
        return
    with_traces(here().ids)
    log.info("traces: %s", here())


def _set_variables() -> None:
    """Copy the variables to the environment, where the SDK reads them, without blank ones: it takes those as set."""
    for name in [name for name, value in os.environ.items() if name.startswith(PREFIX) and not value.strip()]:
        del os.environ[name]
    for name, value in variables(PREFIX).items():
        os.environ.setdefault(name, value)


def stop(within_s: float) -> None:
    """At the end of a process: sends the remaining spans, for at most this many seconds."""
    here().stop(within_s)


def are_wanted(env: Mapping[str, str]) -> bool:
    """True if the variables set a destination; OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none switch them off."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(exporters(env)) and any(env.get(name, "").strip() for name in _SAY_WHERE)


def exporters(env: Mapping[str, str]) -> list[str]:
    """The names in OTEL_TRACES_EXPORTER, `otlp` when it is not set; none for `none`."""
    names = env.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return [name for each in names.split(",") if (name := each.strip()) and name != "none"]


def protocol(env: Mapping[str, str]) -> str:
    """The protocol of `otlp`."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if env.get(name, "").strip():
            return env[name].strip()
    return "http/protobuf"


def are_set_up() -> bool:
    """True if the program, or its bot, has set up traces itself."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)
