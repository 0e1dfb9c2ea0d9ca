"""Stop requests, threads and retries for the poller and the receiver."""

from chatlanes.poller.runtime.retry import GaveUpError, Retry
from chatlanes.poller.runtime.serial_executor import LoopExecutor, SerialExecutor
from chatlanes.poller.runtime.stop import Stop, Stopping

__all__ = [
    "GaveUpError",
    "LoopExecutor",
    "Retry",
    "SerialExecutor",
    "Stop",
    "Stopping",
]
