"""Replaces how kombu's Redis transport registers its sockets with the event loop of a worker.

kombu registers every socket again in each iteration and wakes the loop every second. Here a socket is registered once,
and bindings are refreshed every BINDINGS_EVERY_S.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis as stock

from chatlanes.lanes.transport.transport import LanesTransport

#: kombu checks every second whether bindings, which live for at least an hour, must be refreshed, or swept, which is
#: due once a minute.
BINDINGS_EVERY_S = 30


def register_with_event_loop(self: Any, connection: Any, loop: Any) -> None:
    others = set(loop.on_tick)
    stock.Transport.register_with_event_loop(self, connection, loop)
    loop.on_tick.intersection_update(others)
    cycle = self.cycle
    cycle._binding_expiry_tref.cancel()
    cycle._binding_expiry_tref = loop.call_repeatedly(BINDINGS_EVERY_S, cycle.maybe_refresh_binding_expiry)
    polled: dict[int, Any] = {}

    def register_new_sockets() -> None:
        cycle.on_poll_start()
        for fileno, registered in cycle._fd_to_chan.items():
            # Registering makes a new entry, even for a socket that reuses the descriptor of a closed one.
            if polled.get(fileno) is registered and fileno in loop.readers:
                continue
            if fileno not in cycle._paused_brpop:
                loop.add_reader(fileno, self.on_readable, fileno)
                polled[fileno] = registered

    loop.on_tick.add(register_new_sockets)


def apply(_worker: Any) -> None:
    LanesTransport.register_with_event_loop = register_with_event_loop
