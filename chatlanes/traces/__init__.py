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
from collections.abc import Mapping

from chatlanes.logs.ids import with_traces
from chatlanes.settings import Settings
from chatlanes.settings.reading import variables
from chatlanes.traces.spans import NO_SPAN, OFF, Ending, NoBatch, NoSpan, exporters, here, use

__all__ = ["NO_SPAN", "Ending", "NoBatch", "NoSpan", "are_set_up", "are_wanted", "here", "start", "stop"]

log = logging.getLogger("chatlanes")

PREFIX = "OTEL_"
_SAY_WHERE = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def start(part: str, settings: Settings, instance: str = "") -> None:
    """Start the traces of a process named `part`: poller, receiver, worker. Repeated calls are harmless. Its children
    inherit the traces, and each sends its own spans.
    """
    _set_variables()
    if here() is not OFF or not (are_wanted(os.environ) or are_set_up()):
        return
    try:
        from chatlanes.traces.otel import Otel

        use(Otel(part, settings, instance))
    except ImportError as error:
        log.error("no traces: OTEL_… is set, but %s is missing: pip install 'chatlanes[opentelemetry]'", error.name)
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


def are_set_up() -> bool:
    """True if the program, or its bot, has set up traces itself."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)
