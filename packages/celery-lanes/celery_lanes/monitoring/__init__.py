"""Monitoring: inspection of the lanes, time histograms, events, remote control, and log filters."""

from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.histogram import Histogram
from celery_lanes.monitoring.inspection import Record

__all__ = ["Histogram", "Record", "inspection"]
