"""Digests of code in other packages that our code replaces or depends on. A failing test names the changed code.

Then review the change, adapt our file that the test names, and update the digest: for a piece of lanes/fast in its
table.py, for the others here.
"""

from __future__ import annotations

import sys

import pytest
from kombu import Producer

from celery_lanes.fast.table import PIECES, Piece, digest_of

#: The name, our file, and the digests in the reviewed versions (Celery and kombu 5.6 and 5.7; for the standard library
#: Python 3.11). This code is replaced with every setting.
REPLACED = [
    (
        "celery.worker.consumer.consumer:Consumer.create_task_handler",
        "worker/request.py: ReceiveLeased",
        "e415cb640401 292c5a681f10",
    ),
    (
        "celery.events.dispatcher:EventDispatcher.send",
        "monitoring/events.py: TaskEventDispatcher",
        "833608b9a1bd eb70b87b4c68",
    ),
    (
        "celery.events.dispatcher:EventDispatcher.flush",
        "monitoring/events.py: TaskEventDispatcher.flush",
        "0992996d30f2 4e9a6b4ec6a9",
    ),
    ("kombu.transport.redis:Channel._brpop_read", "transport/transport.py: _brpop_read", "9a9f7f5a6ad9 c42518699709"),
    ("kombu.transport.redis:Channel._put_fanout", "transport/transport.py: _put_fanout", "8dfa8ba6ace5 5b781fe8d941"),
    ("kombu.connection:ConnectionPool.new", "transport/transport.py: _LanesPool", "bfd71d1f6d0c"),
    ("kombu.connection:Connection.Pool", "transport/transport.py: LanesConnection", "047689e510e9"),
    ("kombu.connection:Connection.get_transport_cls", "transport/transport.py: _LanesMixin", "6c439e6b9759"),
    (
        "celery.concurrency.prefork:TaskPool.did_start_ok",
        "worker/pools.py: _replace_dead_children_at_once",
        "eaee0d8066ba",
    ),
    ("celery.concurrency.asynpool:AsynPool.flush", "worker/pools.py: _keep_written_jobs", "7315a8aaaf15 a7671d710b57"),
    (
        "celery.concurrency.asynpool:AsynPool._event_process_exit",
        "worker/pools.py: _replace_dead_children_at_once",
        "74ca49c67049",
    ),
    ("celery.concurrency.gevent:TaskPool.on_stop", "worker/pools.py: adapt_pool", "90304ba930a8"),
    ("celery.concurrency.base:BasePool.terminate_job", "worker/pools.py: adapt_pool", "86cf042a4a30"),
    ("celery.worker.request:Request.revoked", "worker/request.py: LaneRequest.revoked", "5efc6d772842 5132788b1bc8"),
    ("celery.worker.request:Request.terminate", "worker/request.py: LaneRequest.terminate", "5ee69325b498"),
    (
        "celery.worker.request:Request.on_failure",
        "worker/request.py: LaneRequest.on_failure",
        "8d61fddb37c2 21736ec661cd",
    ),
    (
        "celery.worker.request:Request.on_timeout",
        "worker/request.py: LaneRequest.on_timeout",
        "4d231ff59021 3d26ce896008",
    ),
    ("celery.worker.control:revoke", "monitoring/remote_control.py", "25c3bde7a118"),
    ("celery.worker.control:terminate", "monitoring/remote_control.py", "31f08532aef3"),
    ("celery.worker.consumer.consumer:dump_body", "monitoring/log_filters.py", "7b1680f61843"),
    ("celery.worker.pidbox:gPidbox.loop", "monitoring/log_filters.py", "e01599bba283"),
    ("redis._parsers.base:BaseParser.parse_error", "protocol/connection.py", "66c735931d7e"),
    ("redis._parsers.hiredis:_HiredisParser.on_connect", "protocol/connection.py", "d4bdd994b8fb"),
]


@pytest.mark.parametrize(("name", "our_file", "digests"), REPLACED, ids=[name for name, *_ in REPLACED])
def test_replaced_code_is_unchanged(name: str, our_file: str, digests: str) -> None:
    if name.partition(":")[0] in sys.stdlib_module_names | {"http.client"} and sys.version_info[:2] != (3, 11):
        pytest.skip("reviewed in Python 3.11")
    assert digest_of(name) in digests.split(), f"{name} has changed: see celery_lanes/{our_file}"


@pytest.mark.skipif(not hasattr(Producer, "batch"), reason="the pieces are for Celery 5.7")
@pytest.mark.parametrize("piece", PIECES, ids=[piece.module for piece in PIECES])
def test_a_piece_fits_the_installed_packages(piece: Piece) -> None:
    assert list(piece.differing()) == [], f"see celery_lanes/fast/{piece.module}.py"
