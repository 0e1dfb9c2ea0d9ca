"""The traces of this process: off until the process starts them.

Guarantees that an error in their configuration is logged in one sentence and stops nothing.
"""

from __future__ import annotations

import logging
import os

from chatlanes.logs.ids import with_traces
from chatlanes.settings import Settings
from chatlanes.settings.reading import variables
from chatlanes.traces.off import Traces
from chatlanes.traces.switch import PREFIX, are_set_up, are_wanted

log = logging.getLogger("chatlanes")

_OFF = Traces()
_here = _OFF


def here() -> Traces:
    return _here


def start(part: str, settings: Settings, instance: str = "") -> None:
    """Start the traces of a process named `part`: poller, receiver, worker. Repeated calls are harmless. Its children
    inherit the traces, and each sends its own spans.
    """
    global _here
    _set_variables()
    if _here is not _OFF or not (are_wanted(os.environ) or are_set_up()):
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
    with_traces(_here.ids)
    log.info("traces: %s", _here)


def _set_variables() -> None:
    """Copy the variables to the environment, where the SDK reads them, without blank ones: it takes those as set."""
    for name in [name for name, value in os.environ.items() if name.startswith(PREFIX) and not value.strip()]:
        del os.environ[name]
    for name, value in variables(PREFIX).items():
        os.environ.setdefault(name, value)


def stop(within_s: float) -> None:
    """At the end of a process: sends the remaining spans, for at most this many seconds."""
    _here.stop(within_s)
