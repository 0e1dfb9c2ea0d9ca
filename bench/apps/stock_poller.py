"""python -m bench.apps.stock_poller: getUpdates into stock Celery, as a project without lanes would write it.

Confirms a batch after publishing it, as the real poller does. Handles no errors.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import orjson
import requests

from bench.apps.stock_app import app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.apps.stock_poller", description=__doc__)
    parser.add_argument("--api", required=True, help="http://…/bot<token>")
    parser.add_argument("--broker", required=True)
    parser.add_argument("--task", default="bench.noop")
    parser.add_argument("--batched", action="store_true", help="kombu's batch: one pipeline per getUpdates")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    app.conf.broker_url = options.broker
    task = app.tasks[options.task]
    if options.batched:
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            poll(options.api, lambda updates: publish(task, updates, producer))
    else:
        poll(options.api, lambda updates: publish(task, updates))


def poll(api: str, publish_batch: Callable[[list[Any]], None]) -> None:
    offset = 0
    with requests.Session() as session:
        session.headers["Content-Type"] = "application/json"
        while True:
            wanted = orjson.dumps({"offset": offset, "limit": 100, "timeout": 50})
            updates = orjson.loads(session.post(f"{api}/getUpdates", data=wanted, timeout=60).content)["result"]
            publish_batch(updates)
            offset = updates[-1]["update_id"] + 1 if updates else offset


def publish(task: Any, updates: list[Any], producer: Any = None) -> None:
    with producer.batch(len(updates)) if producer and updates else nullcontext():
        for update in updates:
            task.apply_async((update,), producer=producer)


if __name__ == "__main__":
    main()
