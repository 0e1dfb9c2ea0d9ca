"""Monitoring: inspection of the lanes, time histograms, events, remote control, and log filters."""
