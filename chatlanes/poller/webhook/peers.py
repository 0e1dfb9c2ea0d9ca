"""The connections of a receiver, and which one is closed when there are as many as it can hold.

Guarantees that a connection that has shown the secret is never closed for another one. Of the others, the address with
the most connections loses its oldest. Behind a proxy all have one address: those that carry Telegram's updates have
shown the secret.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

#: In the state of an ASGI scope: the Peer whose request it is.
PEER = "chatlanes.peer"


@dataclass(eq=False)
class Peer:
    """The other end of one connection. `hang_up` closes it at once."""

    strangers: "Strangers"
    hang_up: Callable[[], None]
    address: str = ""
    is_malformed: bool = False

    def arrives(self, address: str) -> None:
        self.address = address
        self.strangers.add(self)

    def leaves(self) -> None:
        self.strangers.remove(self)

    def showed_secret(self) -> None:
        self.strangers.remove(self)


@dataclass
class Strangers:
    """Those that have not shown a secret, by their addresses, the oldest first."""

    _by_address: dict[str, dict[Peer, None]] = field(default_factory=dict, init=False)

    def add(self, peer: Peer) -> None:
        self._by_address.setdefault(peer.address, {})[peer] = None

    def remove(self, peer: Peer) -> None:
        """Also one that is none, or no more."""
        peers = self._by_address.get(peer.address, {})
        peers.pop(peer, None)
        if not peers:
            self._by_address.pop(peer.address, None)

    def least_welcome(self) -> Peer | None:
        """The oldest of the address that has most; None when all have shown a secret."""
        most = max(self._by_address.values(), key=len, default=None)
        return next(iter(most)) if most else None
