"""Stop requests, threads and retries: what the poller and the receiver run on."""

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
