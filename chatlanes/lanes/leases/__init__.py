"""The messages that a worker has leased: in-flight table, pending acks, prefetch, heartbeat and recoverer."""

from chatlanes.lanes.leases.in_flight import InFlight, Terminating
from chatlanes.lanes.leases.message import LeasedMessage, id_of, tag_of
from chatlanes.lanes.leases.pending_acks import AckBatch, PendingAcks
from chatlanes.lanes.leases.prefetch import Capacity, Pool
from chatlanes.lanes.leases.registry import in_flight_of, start_background, stop_background
from chatlanes.lanes.leases.report_channel import ReportChannel
from chatlanes.lanes.leases.timings import Times

__all__ = [
    "AckBatch",
    "Capacity",
    "InFlight",
    "LeasedMessage",
    "PendingAcks",
    "Pool",
    "ReportChannel",
    "Terminating",
    "Times",
    "id_of",
    "in_flight_of",
    "start_background",
    "stop_background",
    "tag_of",
]
