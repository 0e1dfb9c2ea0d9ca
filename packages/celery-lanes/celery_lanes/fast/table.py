"""The table of all replacements, each with digests of the code it was written for.

Guarantees that a piece is not applied, and that this is logged, if the installed code has other digests. docs/fast.md
says what each piece replaces, and its gain.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from kombu.log import get_logger

logger = get_logger(__name__)


@dataclass(frozen=True)
class Piece:
    """`module` is in this package, and has `apply(worker)`. `digests`: module:name -> the digest of its source.

    `pool` is the module of the pool that the piece applies to; if it is empty, it applies to all pools.
    """

    module: str
    digests: Mapping[str, str]
    pool: str = ""

    def fits(self, pool: Any) -> bool:
        """True if the piece applies to this pool. Subclasses of Celery's pools are not changed."""
        return not self.pool or type(pool).__module__ == self.pool

    def differing(self) -> Iterator[str]:
        """The names whose installed code differs from the code that the piece was written for."""
        return (name for name, digest in self.digests.items() if digest_of(name) != digest)

    def apply(self, worker: Any) -> None:
        import_module(f"celery_lanes.fast.{self.module}").apply(worker)


def apply(worker: Any) -> None:
    """Apply all pieces that fit a worker, before its pool starts and its consumer is created."""
    not_applied: list[str] = []
    for piece in PIECES:
        if not piece.fits(worker.pool):
            continue
        differing = next(piece.differing(), None)
        if differing is None:
            piece.apply(worker)
        else:
            not_applied.append(f"{piece.module} ({differing} differs)")
    linecache.clearcache()  # frees the sources that the digests were computed from
    if not_applied:
        logger.warning("lanes: slower with the installed packages; not applied: %s", ", ".join(not_applied))


def digest_of(name: str) -> str:
    """The digest of the source of `module:attribute`; empty if it has no source."""
    module, _, path = name.partition(":")
    try:
        named: Any = reduce(getattr, path.split("."), import_module(module))
        found = inspect.unwrap(named)
        lines, first = _class_in(sys.modules[found.__module__], path) if inspect.isclass(found) else _lines_of(found)
    except (AttributeError, ImportError, LookupError):
        return ""
    return hashlib.sha256(_block(lines, first).encode()).hexdigest()[:12]


def _lines_of(function: Any) -> tuple[list[str], int]:
    """The lines of the file of a function, and the index of its first one."""
    code = function.__code__
    return linecache.getlines(code.co_filename), code.co_firstlineno - 1


def _class_in(module: Any, name: str) -> tuple[list[str], int]:
    lines = linecache.getlines(module.__file__)
    return lines, [at for at, line in enumerate(lines) if re.match(rf"class {name}\b", line)][-1]


def _block(lines: list[str], first: int) -> str:
    """The function or class that begins there. inspect.getsource returns the same, but parses the file, which takes a
    third of the start of a worker.
    """
    indent = _indent(lines[first])
    end = next(at for at in range(first, len(lines)) if lines[at].lstrip().startswith(("def ", "class "))) + 1
    for at, line in enumerate(lines[end:], end + 1):
        if text := line.strip():
            if _indent(line) <= indent and text[0] not in ")]}":
                break
            end = at
    return "".join(lines[first:end])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


PIECES: tuple[Piece, ...] = (
    Piece("gc_tuning", {}),
    Piece(
        "tracer",
        {
            "celery.app.trace:build_tracer": "b2945aec38e1",
            "celery.app.trace:TraceInfo": "a07fc09754c4",
            "celery.app.trace:_signal_internal_error": "db70a0045e12",
            "celery.app.trace:report_internal_error": "847aa740ebe6",
            "celery.app.trace:traceback_clear": "3b04bc36c3ab",
            "celery.app.task:Context._get_custom_headers": "2b0196d4ec67",
            "celery.app.task:Context.__init__": "c70eae59bc42",
            "celery.backends.base:Backend.mark_as_done": "87fbe4a218b7",
            "celery.backends.base:Backend.process_cleanup": "70f7f997125f",
            "celery.backends.base:DisabledBackend": "17682ef72d0a",
            "celery.loaders.base:BaseLoader.on_task_init": "4dc601b5666f",
            "celery.loaders.base:BaseLoader.on_process_cleanup": "399415f27a9c",
            "celery.utils.threads:Local": "2359fa4eaa08",
            "celery.utils.threads:_LocalStack": "da874df3e07f",
        },
    ),
    Piece(
        "strategy",
        {
            "celery.worker.strategy:default": "7d90575ada5e",
            "celery.worker.consumer.consumer:Consumer.create_task_handler": "292c5a681f10",
            "celery.worker.consumer.consumer:Consumer.update_strategies": "3b6d9ae0872f",
            "celery.app.trace:fast_trace_task": "52c76aab90e1",
            "celery.app.trace:setup_worker_optimizations": "61e0f9447b6e",
            "celery.worker.request:Request.__init__": "efdf47149cde",
            "celery.worker.request:Request.revoked": "5132788b1bc8",
            "celery.worker.request:Request.acknowledge": "60dad9ce9c39",
            "celery.worker.request:Request.execute_using_pool": "7979562da58f",
            "celery.worker.request:Request.on_accepted": "7bd097a863da",
            "celery.worker.request:Request.on_success": "8d11e320facd",
            "celery.worker.request:Request.send_event": "75ec861e3f35",
            "celery.worker.request:create_request_cls": "871f30fe1cfe",
            "celery.worker.state:task_accepted": "fc90a50f0449",
            "celery.concurrency.base:apply_target": "587f70580295",
            "celery.concurrency.solo:TaskPool": "8b7730cafabb",
            "kombu.message:Message.ack": "b923c3d730af",
            "kombu.serialization:SerializerRegistry.loads": "48783ce22a7f",
            "kombu.utils.json:loads": "40ae6ffb3239",
            "kombu.utils.json:object_hook": "23cd7ad1d330",
        },
    ),
    Piece(
        "prefork_pool",
        {
            "celery.concurrency.asynpool:AsynPool._create_worker_process": "3b0b7a4191fd",
            "celery.concurrency.asynpool:AsynPool.WorkerProcess": "8528109f1424",
            "celery.concurrency.asynpool:AsynPool._create_write_handlers": "f5f9b8dc805b",
            "celery.concurrency.asynpool:AsynPool._create_timelimit_handlers": "4b031bf459e1",
            "celery.concurrency.asynpool:AsynPool._on_soft_timeout": "1a1d67cdb877",
            "celery.concurrency.asynpool:AsynPool._on_hard_timeout": "36623f85f6e7",
            "celery.concurrency.asynpool:AsynPool.process_flush_queues": "2227d473b879",
            "celery.concurrency.asynpool:AsynPool._process_cleanup_queues": "5666c1c61162",
            "celery.concurrency.asynpool:AsynPool.flush": "a7671d710b57",
            "celery.concurrency.asynpool:AsynPool._flush_writer": "07f00b50a580",
            "celery.concurrency.asynpool:ResultHandler": "351099fb1a2e",
            "celery.concurrency.asynpool:Worker": "246bdb24dc94",
            "billiard.pool:Worker.workloop": "ce4a856cce2b",
            "billiard.pool:Worker._ensure_messages_consumed": "2349f7e1103d",
            "billiard.pool:Worker._make_recv_method": "65aab9f53e88",
            "billiard.pool:Worker.after_fork": "2210e993814b",
            "billiard.pool:soft_timeout_sighandler": "e3cbe45f62ec",
            "billiard.pool:Pool.apply_async": "aa125dcd2057",
            "billiard.pool:Pool._worker_active": "c7d650608616",
            "billiard.pool:Pool._join_exited_workers": "c9b857c8a798",
            "billiard.pool:Pool.on_job_ready": "033d9cd3ce1d",
            "billiard.pool:ApplyResult": "0e0753f51fd2",
        },
        "celery.concurrency.prefork",
    ),
    Piece(
        "thread_pool",
        {
            "celery.concurrency.thread:TaskPool": "9cca18119cb9",
            "celery.concurrency.base:apply_target": "587f70580295",
            "celery.concurrency.base:BasePool.apply_async": "4db4ca91db58",
        },
        "celery.concurrency.thread",
    ),
    Piece(
        "gevent_pool",
        {
            "celery.concurrency.gevent:TaskPool": "c8acbe799e27",
            "celery.concurrency.gevent:apply_target": "f0c8d0f43820",
            "celery.concurrency.gevent:apply_timeout": "d3bc11dfa947",
            "celery.concurrency.base:apply_target": "587f70580295",
        },
        "celery.concurrency.gevent",
    ),
)
