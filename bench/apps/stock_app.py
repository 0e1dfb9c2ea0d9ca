"""Stock Celery on Redis as configured when no task may be lost: kombu's own transport, late acknowledgement.

Does not import lanes: they replace kombu's transport, so one process cannot use both.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from bench.apps import endless, no_op
from bench.apps.bot import record

app = Celery("bench")
app.conf.update(task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True)
if release_after := os.environ.get(endless.RELEASE_AFTER):
    app.conf.broker_transport_options = {"visibility_timeout": int(release_after)}
if check_every := os.environ.get(endless.CHECK_EVERY):
    checks = {"unacked_restore_interval": int(check_every), "unacked_restore_throttle": 1}
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, **checks}

noop = app.task(name="bench.noop")(no_op.handle)
hold = app.task(name="bench.hold")(endless.handle)


@app.task(name="bench.start")
def start(update: dict[str, Any]) -> None:
    record(update)


worker_ready.connect(no_op.say_ready)
