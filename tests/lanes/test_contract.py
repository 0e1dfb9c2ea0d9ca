"""The internals of kombu, Celery, billiard and redis-py that lanes depend on, checked against the installed versions.

Each row lists private names and the file in celery_lanes that uses them. A failing row names the file to review.
The behaviour behind the names is tested by the other files of this folder.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from billiard.pool import ApplyResult, Pool
from celery import Celery, beat, bootsteps, signals
from celery.app.amqp import AMQP, Queues
from celery.app.routes import Router
from celery.app.task import Context, Task
from celery.concurrency import asynpool
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.base import BasePool
from celery.concurrency.gevent import TaskPool as GeventPool
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.events.dispatcher import EventDispatcher
from celery.exceptions import TaskRevokedError
from celery.utils.collections import LimitedSet
from celery.worker import state
from celery.worker.components import Pool as PoolStep
from celery.worker.consumer import Consumer
from celery.worker.consumer.events import Events
from celery.worker.request import Request, create_request_cls
from kombu import Connection
from kombu import transport as kombu_transport
from kombu.message import Message
from kombu.transport import redis as stock
from kombu.transport import virtual

from celery_lanes.worker.request import LaneRequest
from celery_lanes.worker.task import LaneTask
from tests.support.lab import needs_batches

#: The reviewed minor versions. Review a new one before you add it here and in pyproject.toml.
REVIEWED = {"celery": ("5.6", "5.7"), "kombu": ("5.6", "5.7"), "billiard": ("4.3",), "redis": ("8.1",)}


@pytest.mark.parametrize("package", REVIEWED)
def test_the_installed_versions_are_reviewed(package: str) -> None:
    installed = version(package)
    assert installed.rpartition(".")[0] in REVIEWED[package], (
        f"{package} {installed} is installed, but lanes were reviewed with {REVIEWED[package]}: review what changed"
    )


NAMES = [
    (
        stock.MultiChannelPoller,
        "on_poll_start on_readable get _register _client_registered",
        "transport.py: LanesPoller",
    ),
    (stock.QoS, "append ack reject can_consume_max_estimate", "transport.py: LanesQoS"),
    (virtual.QoS, "can_consume", "transport.py: kombu calls it before it reads a channel"),
    (stock.Channel, "QoS _new_queue _put _get _purge _delete", "transport.py: queues"),
    (stock.Channel, "basic_consume _basic_cancel active_queues", "transport.py: consumers"),
    (stock.Channel, "_on_connection_disconnect _close_clients _create_client", "transport.py, fetch.py: connections"),
    (stock.Channel, "global_keyprefix", "transport.py, fetch.py: keys"),
    (stock.Transport, "Channel register_with_event_loop", "transport.py: LanesTransport; release_5_6.py: Transport"),
    (stock, "SentinelChannel SentinelTransport", "transport.py: sentinel"),
    (Connection, "get_transport_cls as_uri transport_options", "install.py, connect.py"),
    (Message, "delivery_tag", "request.py: the tag of a message"),
    (Task, "Request retry run", "task.py: LaneTask"),
    (Context, "called_directly delivery_info", "delivery.py: delivery_of"),
    (Request, "revoked execute_using_pool", "request.py: LaneRequest"),
    (Consumer, "on_decode_error on_close create_task_handler _limit_task", "request.py: ReceiveLeased"),
    (Consumer, "add_task_queue", "release_5_6.py: KeepAddedQueues"),
    (EventDispatcher, "flush send", "events.py"),
    (BasePool, "is_green uses_semaphore num_processes", "install.py: LanesStep"),
    (PreforkPool, "flush", "pools.py"),
    (GeventPool, "on_stop terminate_job", "shutdown.py"),
    (stock.Channel, "_put_fanout _get_publish_topic conn_or_acquire", "transport.py: heard_by"),
    (EventDispatcher, "send flush _publish", "events.py: TaskEventDispatcher"),
    (AsynPool, "flush maintain_pool _flush_writer", "pools.py"),
    (Pool, "maintain_pool", "pools.py"),
    (ApplyResult, "discard", "pools.py"),
    (LimitedSet, "discard add", "request.py: removing a revoke"),
    (state, "revoked task_ready", "request.py"),
    (signals, "worker_shutdown", "install.py"),
    (bootsteps, "StartStopStep", "install.py"),
    (AMQP, "queues_cls Router Queues routes", "install.py: _route_by_lanes"),
    (Queues, "select select_add add", "routing.py: LaneQueues"),
    (Router, "route query_router lookup_route", "routing.py: LaneRouter"),
    (beat, "_evaluate_entry_args _evaluate_entry_kwargs", "beat.py"),
    (redis.Redis, "parse_response", "connection.py: PolledConnection.read"),
    (redis.Connection, "send_command can_read disconnect", "connection.py: PolledConnection"),
]


@pytest.mark.parametrize(
    ("owner", "name", "user"), [(owner, name, user) for owner, names, user in NAMES for name in names.split()]
)
def test_private_names_exist(owner: Any, name: str, user: str) -> None:
    assert hasattr(owner, name), f"{owner} no longer has {name}, which celery_lanes/{user} uses"


SIGNATURES = [
    (stock.MultiChannelPoller._register, "self channel client type"),
    (stock.MultiChannelPoller._client_registered, "self channel client cmd"),
    (stock.MultiChannelPoller.get, "self callback timeout"),
    (stock.QoS.append, "self message delivery_tag"),
    (stock.QoS.ack, "self delivery_tag"),
    (stock.QoS.reject, "self delivery_tag requeue"),
    (stock.Channel._put, "self queue message kwargs"),
    (stock.Channel._new_queue, "self queue auto_delete kwargs"),
    (stock.Channel._get, "self queue"),
    (stock.Channel._purge, "self queue"),
    (stock.Channel._basic_cancel, "self consumer_tag"),
    (stock.Channel._on_connection_disconnect, "self connection"),
    (stock.Channel._create_client, "self asynchronous"),
    (AsynPool._flush_writer, "self proc writer"),
    (Router.route, "self name args task_type"),  # options and kwargs are left out below
    (Router.query_router, "self router task args task_type"),
    (Router.lookup_route, "self name args task_type"),
    (Queues.select, "self include"),
    (redis.Connection.can_read, "self timeout"),
]


@pytest.mark.parametrize(("function", "parameters"), SIGNATURES, ids=[each[0].__qualname__ for each in SIGNATURES])
def test_function_signatures_are_unchanged(function: Any, parameters: str) -> None:
    actual = [name for name in inspect.signature(function).parameters if name not in ("kwargs", "options")]
    expected = [name for name in parameters.split() if name != "kwargs"]
    assert actual[: len(expected)] == expected, f"{function.__qualname__} takes {actual}, but took {expected}"


def test_the_pollers_tables_are_unchanged() -> None:
    poller = stock.MultiChannelPoller()
    assert isinstance(poller._fd_to_chan, dict), "transport.py adds its sockets to _fd_to_chan: fd -> (channel, kind)"
    assert isinstance(poller._chan_to_sock, dict), "transport.py removes its sockets from _chan_to_sock"
    assert isinstance(poller._channels, set), "transport.py iterates over _channels"
    source = inspect.getsource(stock.MultiChannelPoller._register)
    assert "self._fd_to_chan[sock.fileno()] = (channel, type)" in source, "the value of _fd_to_chan has changed"
    assert "self._chan_to_sock[(channel, client, type)] = sock" in source, "the key of _chan_to_sock has changed"


def test_a_channel_has_the_attributes_that_fetches_use() -> None:
    source = inspect.getsource(virtual.Channel) + inspect.getsource(virtual.Transport)
    assert "self._active_queues" in source, "transport.py: active_lane_queues reads _active_queues"
    assert "self.connection._callbacks[queue] = " in source, "fetch.py calls connection._callbacks[queue]"
    assert "self._delivered" in (qos := inspect.getsource(virtual.QoS)), "fetch.py counts qos._delivered"
    assert "self._dirty" in qos, "fetch.py counts qos._dirty"
    assert "cycle" in inspect.getsource(stock.Transport.__init__), "transport.py replaces Transport.cycle"
    assert "arguments" in inspect.getsource(virtual.Channel.queue_declare) or "**kwargs" in inspect.getsource(
        virtual.Channel.queue_declare
    ), "transport.py: _new_queue receives the arguments of the declaration"


@needs_batches
def test_a_batch_passes_itself_to_put() -> None:
    for name in ("publish", "flush", "discard", "_check_usable"):
        assert hasattr(stock.PublishBatch, name), "publish_batch.py: LanesBatch"
    parameters = list(inspect.signature(stock.Channel.create_publish_batch).parameters)
    assert parameters == ["self", "max_size"], "transport.py: create_publish_batch"
    assert "_publish_batch=self" in inspect.getsource(stock.PublishBatch.publish), (
        "transport.py: _put receives its batch as _publish_batch"
    )


def test_celery_checks_revoked_before_the_pool() -> None:
    class Refused(LaneRequest):
        def revoked(self) -> bool:
            return True

    app = Celery("contract", set_as_current=False)
    task = app.tasks["celery.backend_cleanup"]
    applied: list[Any] = []
    pool = SimpleNamespace(apply_async=lambda *args, **kwargs: applied.append(args))
    for made in (Refused, create_request_cls(Refused, task, pool, "host", None, app=app)):
        request = made.__new__(made)
        request.id, request._task = "an id", task
        with pytest.raises(TaskRevokedError):
            request.execute_using_pool(pool)
    assert applied == [], "request.py: LaneRequest.revoked() keeps a released message from running"


def test_a_request_has_its_message_and_headers() -> None:
    source = inspect.getsource(Request.__init__)
    assert "self._message = message" in source, "request.py: revoked() reads the tag of _message"
    assert "self._request_dict = " in source, "request.py: revoked() reads the lane header from _request_dict"
    assert "'properties': properties" in source, "delivery.py: the child reads the tag from request.properties"
    assert "self._app = app" in source, "request.py: revoked() reaches the lanes through _app"


def test_a_revoke_has_its_time() -> None:
    revokes = LimitedSet()
    revokes.add("an id", now=12.5)
    assert revokes._data["an id"][0] == 12.5, "termination.py: revoked_at_s reads state.revoked._data[id][0]"
    assert isinstance(state.revoked, LimitedSet)


def test_a_stopping_consumer_flushes_the_pool() -> None:
    assert "self.pool.flush()" in inspect.getsource(Consumer.on_close), (
        "pools.py replaces pool.flush, which the consumer's on_close calls"
    )
    stock_flush = inspect.getsource(AsynPool.flush)
    for part in ("outbound_buffer", "_active_writers", "_cache", "maintain_pool", "_write_to", "_flush_writer"):
        assert part in stock_flush, f"pools.py reimplements AsynPool.flush, which no longer uses {part}"
    assert "'_write_job'" in stock_flush
    assert hasattr(ApplyResult, "_write_to"), "pools.py continues to write to job._write_to"
    assert "job._writer" in inspect.getsource(asynpool), "pools.py finds a job's half-written pipe by job._writer"


def test_the_kinds_of_pools_are_unchanged() -> None:
    assert PreforkPool.uses_semaphore, "install.py: a pool that uses a semaphore forks"
    assert not ThreadPool.uses_semaphore
    assert not GeventPool.uses_semaphore
    assert "_pool.join()" in inspect.getsource(GeventPool), "shutdown.py: on_stop"
    assert GeventPool.is_green, "install.py: a green pool prefetches nothing"


def test_celery_dispatcher_groups_events() -> None:
    source = inspect.getsource(EventDispatcher)
    for name in ("buffer_group", "buffer_limit", "on_send_buffered", "_group_buffer"):
        assert f"self.{name}" in source, f"events.py sets {name}"
    assert "if c.hub else None" in inspect.getsource(Events.start), "events.py groups events where Celery does not"


def test_bootsteps_can_be_added() -> None:
    assert f"{PoolStep.__module__}:{PoolStep.__name__}" == "celery.worker.components:Pool", (
        "install.py: LanesStep.requires"
    )
    app = Celery("contract", set_as_current=False)
    for part in ("worker", "consumer"):
        assert isinstance(app.steps[part], set), f"install.py adds a step to app.steps[{part!r}]"
    assert "on_decode_error" in inspect.getsource(Consumer.create_task_handler), (
        "request.py: ReceiveLeased replaces consumer.on_decode_error"
    )


def test_every_publish_of_a_task_calls_send_task() -> None:
    assert "return app.send_task(" in inspect.getsource(Task.apply_async), "install.py replaces it"
    assert list(inspect.signature(Celery.send_task).parameters)[1:7] == [
        *("name", "args", "kwargs", "countdown", "eta", "task_id")
    ], "install.py: _send_task"


def test_connections_of_an_app_can_have_their_own_class() -> None:
    assert "return self.amqp.Connection(" in inspect.getsource(Celery._connection), "install.py sets it"
    for scheme, cls in (("redis", stock.Transport), ("rediss", stock.Transport), ("sentinel", stock.SentinelTransport)):
        assert kombu_transport.get_transport_cls(scheme) is cls, "transport.py: _INSTEAD_OF"


def test_a_task_can_name_its_request_class() -> None:
    assert LaneTask.Request == "celery_lanes.worker.request:LaneRequest"
    assert "symbol_by_name(task.Request)" in inspect.getsource(
        __import__("celery.worker.strategy", fromlist=["default"]).default
    ), "request.py: Celery creates its requests from task.Request"
