"""Monitoring: inspection of the lanes, time histograms, events, remote control, and log filters."""

from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram
from chatlanes.lanes.monitoring.inspection import Record

__all__ = ["Histogram", "Record", "inspection"]
