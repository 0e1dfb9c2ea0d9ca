"""Traces of updates, by OpenTelemetry: from the poller or receiver through the handler to each Bot API call.

Promises that nothing of OpenTelemetry is imported, and nothing stored with an update, unless it is configured by its
own variables (OTEL_…); and that no trace holds the text of a message or a token. A trace that could not be sent is
lost: nothing waits for a collector but the end of a process, and that for a moment.
"""

from chatlanes.traces.off import Ending
from chatlanes.traces.process import here, start, stop

__all__ = ["Ending", "here", "start", "stop"]
