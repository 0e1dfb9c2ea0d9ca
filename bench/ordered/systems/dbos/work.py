"""A worker: runs until it is stopped."""

import threading

from app import launch

launch()
threading.Event().wait()
