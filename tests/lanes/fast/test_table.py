"""The table of pieces: which of them are applied to a worker."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from functools import reduce
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.solo import TaskPool

from celery_lanes.fast import table
from celery_lanes.fast.table import Piece, digest_of
from tests.support import ROOT

DIGEST = digest_of("celery.concurrency.solo:TaskPool")
PIECES = (
    Piece("fits", {"celery.concurrency.solo:TaskPool": DIGEST}),
    Piece("differs", {"celery.concurrency.solo:TaskPool": DIGEST, "celery.concurrency.base:BasePool": "0"}),
    Piece("is_gone", {"celery.concurrency.solo:no_such_name": DIGEST}),
    Piece("of_another_pool", {"celery.no_such_module:TaskPool": DIGEST}, "celery.concurrency.thread"),
)


def test_a_piece_that_does_not_fit_is_left_off_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    applied: list[Any] = []
    monkeypatch.setattr(table, "PIECES", PIECES)
    monkeypatch.setattr(Piece, "apply", lambda piece, worker: applied.append(piece.module))
    monkeypatch.setattr(logging.getLogger("celery_lanes.fast.table"), "propagate", True)
    # When the pieces are applied to a worker that only one of them fits
    with caplog.at_level(logging.WARNING, "celery_lanes.fast.table"):
        table.apply(SimpleNamespace(pool=TaskPool.__new__(TaskPool)))
    # Then that one is applied, and one log line names those that do not match the installed packages
    assert applied == ["fits"]
    assert [record.getMessage() for record in caplog.records] == [
        "lanes: slower with the installed packages; not applied: differs (celery.concurrency.base:BasePool differs), "
        "is_gone (celery.concurrency.solo:no_such_name differs)"
    ]


@pytest.mark.parametrize("name", sorted({name for piece in table.PIECES for name in piece.digests}))
def test_the_digest_is_that_of_the_source_as_inspect_finds_it(name: str) -> None:
    module, _, path = name.partition(":")
    source = inspect.getsource(reduce(getattr, path.split("."), import_module(module)))
    assert digest_of(name) == hashlib.sha256(source.encode()).hexdigest()[:12]


def test_every_piece_is_documented() -> None:
    page = (ROOT / "docs" / "fast.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(piece.module for piece in table.PIECES)
