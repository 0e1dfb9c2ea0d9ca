"""A look right before a call leaves this process: the last moment at which it can still be kept back.

Promises that between the look and the bytes lies nothing that takes time: a connection is made before, TLS included.
So a process that was frozen on its way to the wire looks again when it wakes. What the look raises goes up, and then
nothing was sent that a server could act upon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

_here = threading.local()  # under gevent each greenlet has its own


@contextmanager
def looking(look: Callable[[], object]) -> Iterator[None]:
    """Around one request through a LookingAdapter."""
    _here.look = look
    try:
        yield
    finally:
        _here.look = None


class _Looks:
    """Every part of a request passes here, its end too: without that a server does nothing."""

    def send(self, data: Any) -> None:
        look = getattr(_here, "look", None)
        if look is not None:
            if self.sock is None:  # type: ignore[attr-defined]
                self.connect()  # type: ignore[attr-defined]
            look()
        super().send(data)  # type: ignore[misc]


class _Connection(_Looks, HTTPConnection):
    pass


class _TlsConnection(_Looks, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class LookingAdapter(HTTPAdapter):
    """For a requests.Session: its connections look before they send."""

    def init_poolmanager(self, *args: Any, **kw: Any) -> None:
        super().init_poolmanager(*args, **kw)
        _use_ours(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kw: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kw)
        _use_ours(manager)
        return manager


def _use_ours(manager: Any) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
