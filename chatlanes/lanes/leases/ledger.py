"""Former module, until all callers have the new ones."""

from chatlanes.lanes.leases.in_flight import Terminating

__all__ = ["Terminating"]
