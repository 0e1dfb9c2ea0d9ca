"""Other task queues on Redis, unordered: the same no-op task in each."""

from bench.peers.known import PEERS

__all__ = ["PEERS"]
