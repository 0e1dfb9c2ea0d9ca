"""Celery's and kombu's code that lanes have their own in the place of: says which of it has changed.

Where one of these fails, read what changed there, take it over into the file of ours that is named, and then the new
digest into this one.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import pytest
from celery.app import trace
from celery.app.task import Context
from celery.backends.base import Backend, DisabledBackend
from celery.concurrency import gevent, solo, thread
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.events.dispatcher import EventDispatcher
from celery.loaders.base import BaseLoader
from celery.utils.threads import Local, _LocalStack
from celery.worker import control, state, strategy
from celery.worker.consumer import Consumer
from celery.worker.request import Request, create_request_cls
from kombu.message import Message
from kombu.serialization import SerializerRegistry
from kombu.transport import redis as stock
from kombu.transport import virtual
from kombu.utils import json as kombu_json

REPLACED = [
    (trace.build_tracer, "tracer.py: Tracer", "b2945aec38e1"),
    (trace.fast_trace_task, "tracer.py: run", "52c76aab90e1"),
    (Context._get_custom_headers, "tracer.py: LaneContext", "2b0196d4ec67"),
    (Backend.mark_as_done, "tracer.py: nothing is called for a backend that stores nothing", "87fbe4a218b7"),
    (Backend.process_cleanup, "tracer.py: nothing is called for a backend that stores nothing", "70f7f997125f"),
    (DisabledBackend, "tracer.py: nothing is called for a backend that stores nothing", "17682ef72d0a"),
    (BaseLoader.on_task_init, "tracer.py: a loader that does nothing is not called", "4dc601b5666f"),
    (BaseLoader.on_process_cleanup, "tracer.py: a loader that does nothing is not called", "399415f27a9c"),
    (strategy.default, "strategy.py: receive", "7d90575ada5e"),
    (Request.__init__, "request.py: PlainRequest.__init__", "efdf47149cde"),
    (Request.revoked, "request.py: PlainRequest.revoked", "5132788b1bc8"),
    (Request.acknowledge, "request.py: PlainRequest.acknowledge", "60dad9ce9c39"),
    (Request.execute_using_pool, "request.py: PlainRequest.execute_using_pool", "7979562da58f"),
    (Request.on_accepted, "request.py: PlainRequest.on_accepted", "7bd097a863da"),
    (Request.on_success, "request.py: PlainRequest.on_success", "8d11e320facd"),
    (Request.send_event, "request.py: PlainRequest.send_event", "75ec861e3f35"),
    (state.task_accepted, "request.py: PlainRequest.on_accepted", "fc90a50f0449"),
    (EventDispatcher.send, "events.py: Dispatcher.tells_tasks", "eb70b87b4c68"),
    (Local, "local_stack.py", "2359fa4eaa08"),
    (_LocalStack, "local_stack.py", "da874df3e07f"),
    (create_request_cls, "request.py: PlainRequest.execute_using_pool", "871f30fe1cfe"),
    (Message.__init__, "transport.py: Message", "bd56cb3ffa7a"),
    (virtual.Message.__init__, "transport.py: Message", "c90d08ccfa2e"),
    (Consumer.create_task_handler, "strategy.py: ReceivePlain", "292c5a681f10"),
    (solo.TaskPool, "request.py: PlainRequest._run_here", "8b7730cafabb"),
    (thread.TaskPool.on_apply, "request.py: PlainRequest._run_here", "5b5ead7fb32e"),
    (gevent.TaskPool.on_apply, "request.py: PlainRequest._run_here", "146771a68c86"),
    (Message.ack, "request.py: PlainRequest.acknowledge", "b923c3d730af"),
    (stock.Channel._brpop_read, "channel.py: LaneChannelMixin._brpop_read", "c42518699709"),
    (PreforkPool.did_start_ok, "prefork.py: replace_the_dead_at_once", "eaee0d8066ba"),
    (Request.terminate, "request.py: LaneRequest.terminate", "5ee69325b498"),
    (Request.on_failure, "request.py: LaneRequest.on_failure", "21736ec661cd"),
    (control.revoke, "control.py: revoke", "25c3bde7a118"),
    (control.terminate, "control.py: terminate", "31f08532aef3"),
    (SerializerRegistry.loads, "json_decoder.py, strategy.py: what may be decoded", "48783ce22a7f"),
    (kombu_json.loads, "json_decoder.py", "40ae6ffb3239"),
    (kombu_json.object_hook, "json_decoder.py", "23cd7ad1d330"),
]


@pytest.mark.parametrize(
    ("replaced", "ours", "digest"), REPLACED, ids=[getattr(each[0], "__qualname__", "") for each in REPLACED]
)
def test_what_lanes_replace_is_what_was_read(replaced: Any, ours: str, digest: str) -> None:
    now = hashlib.sha256(inspect.getsource(replaced).encode()).hexdigest()[:12]
    assert now == digest, f"{replaced} has changed: see chatlanes/lanes/{ours}"
