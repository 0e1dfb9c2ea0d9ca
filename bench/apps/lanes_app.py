"""The no-op task of stock_app, in lanes, with the options that lanes.install sets."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready
from kombu import Exchange, Queue

from bench.apps import endless, slow_chat
from bench.apps.bot import record
from bench.measure.scale import QUEUES, READY
from chatlanes import lanes
from chatlanes.lanes.fast import table

app = Celery("bench")
lanes.install(app, fast=os.environ.get("FAST") != "0")
#: Modules of chatlanes/lanes/fast to switch off, separated by commas, to measure the gain of each (docs/fast.md).
off = os.environ.get("BENCH_OFF", "").split(",")
table.PIECES = tuple(piece for piece in table.PIECES if piece.module not in off)
app.conf.update(
    task_ignore_result=True,
    task_queues=[
        Queue(f"updates.{n}", Exchange(""), f"updates.{n}", queue_arguments=lanes.QUEUE_ARGUMENTS)
        for n in range(QUEUES)
    ],
)


@app.task(name="bench.noop")
def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


if release_after := os.environ.get(endless.RELEASE_AFTER):
    app.conf.broker_transport_options = {"lease_seconds": int(release_after)}


@app.task(name="bench.hold")
def hold(update: dict[str, Any]) -> None:
    endless.handle(update)


@app.task(name="bench.start")
def start(update: dict[str, Any]) -> None:
    record(update)


@app.task(name="bench.chat")
def chat(update: dict[str, Any]) -> None:
    slow_chat.handle(update)


@worker_ready.connect
def say_ready(**_: Any) -> None:
    print(READY, flush=True)
