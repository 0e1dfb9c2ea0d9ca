"""Traces of updates, by OpenTelemetry: from the poller or receiver through the handler to each Bot API call.

Guarantees that nothing of OpenTelemetry is imported, and nothing stored with an update, unless its own variables
(OTEL_…) configure it, and that no trace holds the text of a message or a token. A trace that could not be sent is
lost: only the end of a process waits for a collector, and that briefly.
"""

from chatlanes.traces.off import Ending
from chatlanes.traces.process import here, start, stop

__all__ = ["Ending", "here", "start", "stop"]
