"""python -m bench.apps.stock_webhook bare|stock PORT BROKER: webhooks on the same HTTP server, as a comparison
for the receiver.

`bare` answers 200 and does nothing: the cost of HTTP itself. `stock` is a webhook without lanes: one apply_async for
each request, then 200.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import orjson
import uvicorn

from bench.apps.stock_app import app, noop


async def bare(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def stock(scope: Any, receive: Any, send: Any) -> None:
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    if body:
        noop.apply_async((orjson.loads(body),))
    await bare(scope, receive, send)


def main() -> None:
    which, port, broker = sys.argv[1:]
    app.conf.broker_url = broker
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again after it has stopped
    sides = {"bare": bare, "stock": stock}
    uvicorn.run(sides[which], port=int(port), http="h11", lifespan="off", log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
