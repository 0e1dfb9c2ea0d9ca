"""The no-op task of stock_app, in lanes, with the options that lanes.install sets."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_ready
from kombu import Exchange, Queue

import celery_lanes as lanes
from bench.apps import bot, endless, no_op, slow_chat
from bench.measure.scale import QUEUES
from celery_lanes.fast import table
from chatlanes.updates.timer_texts import TIMER_TEXTS

app = Celery("bench")
lanes.install(app, fast=os.environ.get("FAST") != "0", timer_texts=TIMER_TEXTS)
#: Modules of celery_lanes/fast to switch off, separated by commas, to measure the gain of each (docs/fast.md).
off = os.environ.get("BENCH_OFF", "").split(",")
table.PIECES = tuple(piece for piece in table.PIECES if piece.module not in off)
app.conf.update(
    task_ignore_result=True,
    task_queues=[
        Queue(f"updates.{n}", Exchange(""), f"updates.{n}", queue_arguments=lanes.QUEUE_ARGUMENTS)
        for n in range(QUEUES)
    ],
)
if release_after := os.environ.get(endless.RELEASE_AFTER):
    app.conf.broker_transport_options = {"lease_seconds": int(release_after)}

noop = app.task(name="bench.noop")(no_op.handle)
hold = app.task(name="bench.hold")(endless.handle)
start = app.task(name="bench.start")(bot.record)
chat = app.task(name="bench.chat")(slow_chat.handle)

worker_ready.connect(no_op.say_ready)
