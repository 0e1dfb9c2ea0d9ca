"""Former module, until all callers have the new ones."""

from chatlanes.lanes.leases.message import id_of, tag_of
from chatlanes.lanes.leases.prefetch import Pool

__all__ = ["Pool", "id_of", "tag_of"]
