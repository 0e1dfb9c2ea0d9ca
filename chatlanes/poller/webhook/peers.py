"""The connections of a receiver, and the choice of the one to close when there are too many.

Guarantees that a connection which has shown the secret is never closed in favour of another one. Of the others, the
oldest connection of the address with the most connections is closed. Behind a proxy all have the same address, but
those that carry Telegram's updates have shown the secret.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

#: Key in the state of an ASGI scope: the Peer of the request.
PEER = "chatlanes.peer"


@dataclass(eq=False)
class Peer:
    """The other end of one connection. `close` closes it at once."""

    unauthenticated: "UnauthenticatedPeers"
    close: Callable[[], None]
    address: str = ""
    is_malformed: bool = False

    def connected(self, address: str) -> None:
        self.address = address
        self.unauthenticated.add(self)

    def disconnected(self) -> None:
        self.unauthenticated.remove(self)

    def authenticated(self) -> None:
        self.unauthenticated.remove(self)


@dataclass
class UnauthenticatedPeers:
    """Peers that have not shown a secret, by address, the oldest first."""

    _by_address: dict[str, dict[Peer, None]] = field(default_factory=dict, init=False)

    def add(self, peer: Peer) -> None:
        self._by_address.setdefault(peer.address, {})[peer] = None

    def remove(self, peer: Peer) -> None:
        """Removes a peer, if it is here."""
        peers = self._by_address.get(peer.address, {})
        peers.pop(peer, None)
        if not peers:
            self._by_address.pop(peer.address, None)

    def next_to_close(self) -> Peer | None:
        """The oldest peer of the address with the most peers; None if all peers have shown a secret."""
        most = max(self._by_address.values(), key=len, default=None)
        return next(iter(most)) if most else None
