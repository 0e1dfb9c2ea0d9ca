"""The messages that a worker has leased: in-flight table, pending acks, prefetch, reports and background thread."""

from celery_lanes.leases.background import in_flight_of, start_background, stop_background
from celery_lanes.leases.in_flight import InFlight, Terminating, tag_of
from celery_lanes.leases.pending_acks import BOUNDS_S, LONGER, LOST, RECOVERY, RUN, RUNS, SUM, WAIT, times_field
from celery_lanes.leases.prefetch import Pool
from celery_lanes.leases.reports import (
    DELAYED,
    DONE,
    GONE,
    INTERRUPTED,
    REFUSED,
    RELEASED,
    STARTED,
    PipeEnd,
    Report,
    ReportChannel,
    line_of,
    report_of,
)
