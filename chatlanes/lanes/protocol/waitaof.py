"""Tests whether WAITAOF waits for the disk: several servers answer it before they fsync (docs/redis.md).

Guarantees that a server passes only if each of several writes waited as long as it must on a server that syncs once a
second. The test takes 4 s. Its result is stored in a key with the run id of the server, so it runs once for each start
of a server. Does not guarantee that every server that waits passes: a slow network or disk may prevent it.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

#: string: run id of a server, a blank, and why it failed the test; nothing follows if its WAITAOF waits. A copy on a
#: replica, or after a restart, has the run id of another server.
KEY = "server:waitaof"

#: Two fsyncs of `everysec` begin a second apart, so a write that follows the end of one waits for the next.
LONG_S = 0.3
#: A server that waits fails two trials: one because it was idle, one before the end of the second in which it syncs. On
#: a busy machine others fail too; each needs one more proof. A server that does not wait fails within milliseconds, or
#: every other time if an fsync takes a second: it never has four proofs more than such failures.
PROOFS, EXPECTED_FAILURES, FAILURES = 4, 2, 5
#: Longer than any wait on a healthy disk, shorter than the timeouts of the callers.
ANSWER_WITHIN_MS = 2_500
#: Lifetime of a negative result, whose reason may pass, and of the value that an interrupted trial leaves.
FAILED_MS = 600_000


class Trial(NamedTuple):
    """One write, followed by WAITAOF."""

    write_s: float
    wait_s: float
    is_answered: bool
    #: Right after the answer of WAITAOF.
    is_fsync_under_way: bool

    @property
    def is_proof(self) -> bool:
        """True if the wait was longer than a plain round trip, and nothing is left to sync.

        While an fsync takes more than a second, servers delay the next write. So a server that does not wait for the
        fsync of that write answers late too, but as soon as that fsync begins.
        """
        return self.wait_s - self.write_s >= LONG_S and not self.is_fsync_under_way


def waitaof_fault(client: Redis) -> str:
    """Why WAITAOF of this server proves nothing; empty if it waits for the disk. Raises RedisError."""
    try:
        with client.client() as connection:  # WAITAOF refers to the writes of its own connection
            return _stored_fault(connection)
    except ResponseError as error:  # a replica, a full server, or a user without permission
        return f"its WAITAOF could not be tested ({error})"


def _stored_fault(connection: Redis) -> str:
    info: dict[str, Any] = connection.info("server")
    run_id = str(info.get("run_id", ""))
    known: Any = connection.get(KEY) or b""
    found_of, _, found = known.decode().partition(" ")
    if run_id and found_of == run_id:
        return str(found)
    why = _test(connection)
    connection.set(KEY, f"{run_id} {why}", px=FAILED_MS if why else None)
    return why


def _test(connection: Redis) -> str:
    proofs = failures = 0
    while proofs - max(failures - EXPECTED_FAILURES, 0) < PROOFS:
        trial = _try(connection)
        if not trial.is_answered:
            return f"its WAITAOF does not answer within {ANSWER_WITHIN_MS / 1000:g} s"
        proofs, failures = proofs + trial.is_proof, failures + (not trial.is_proof)
        if failures == FAILURES:
            return "its WAITAOF answers too soon to have waited for the disk"
    return ""


def _try(connection: Redis) -> Trial:
    began_s = time.monotonic()
    connection.set(KEY, "", px=FAILED_MS)
    written_s = time.monotonic()
    local, _ = connection.execute_command("WAITAOF", 1, 0, ANSWER_WITHIN_MS)
    waited_s = time.monotonic()
    persistence: dict[str, Any] = connection.info("persistence")
    pending = persistence.get("aof_pending_bio_fsync", "unknown")
    return Trial(written_s - began_s, waited_s - written_s, bool(local), bool(pending))
