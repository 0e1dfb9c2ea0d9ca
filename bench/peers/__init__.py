"""Other task queues on Redis, without ordering; each runs the same no-op task."""

from bench.peers.known import PEERS

__all__ = ["PEERS"]
