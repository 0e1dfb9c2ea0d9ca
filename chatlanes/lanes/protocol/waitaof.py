"""Whether WAITAOF waits for the disk. It is tried: several servers answer it before they fsync (docs/redis.md).

Promises that a server is believed only after writes that each waited as long as a server must that syncs once a second.
What was found is remembered with the server's run id in a key: the 4 s that a proof takes are spent once in its life.
Does not promise to recognise every server that waits: with a slow network or a very slow disk it is doubted.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

#: string: run id of a server, a blank, and why it is doubted; nothing follows for one whose WAITAOF waits. A copy on a
#: replica, or after a restart, names another server.
KEY = "server:waitaof"

#: Two fsyncs of `everysec` begin a second apart, so a write that follows the end of one waits for the next.
LONG_S = 0.3
#: A server that waits fails twice at most: when it was idle, and before the end of a second by which it counts. It
#: needs 3 to 4 s for the proofs. One that does not wait fails within milliseconds, or every other time where an fsync
#: takes a second.
PROOFS, FAILURES = 4, 3
#: Longer than any wait on a disk in order, shorter than the timeouts of those who ask.
ANSWER_WITHIN_MS = 2_500
#: A doubt lasts so long, since its reason may pass; and so does what a trial that was cut short leaves behind.
DOUBTED_MS = 600_000


class Trial(NamedTuple):
    """One write, followed by WAITAOF."""

    write_s: float
    wait_s: float
    is_answered: bool
    #: Right after WAITAOF was answered.
    is_fsync_under_way: bool

    @property
    def is_proof(self) -> bool:
        """The wait exceeds a plain round trip, and nothing is left to sync.

        While an fsync of more than a second is under way, servers hold back the next write. A server that does not
        wait for the fsync of that write answers late too, but when this fsync begins.
        """
        return self.wait_s - self.write_s >= LONG_S and not self.is_fsync_under_way


def doubt(client: Redis) -> str:
    """Why WAITAOF of this server proves nothing; empty when it waits for the disk. Raises RedisError."""
    try:
        with client.client() as connection:  # WAITAOF is about the writes of its own connection
            return _doubt(connection)
    except ResponseError as error:  # a replica, a full server, a user who may not
        return f"its WAITAOF could not be tried ({error})"


def _doubt(connection: Redis) -> str:
    info: dict[str, Any] = connection.info("server")
    run_id = str(info.get("run_id", ""))
    known: Any = connection.get(KEY) or b""
    found_of, _, found = known.decode().partition(" ")
    if run_id and found_of == run_id:
        return str(found)
    why = _found_out(connection)
    connection.set(KEY, f"{run_id} {why}", px=DOUBTED_MS if why else None)
    return why


def _found_out(connection: Redis) -> str:
    proofs = failures = 0
    while proofs < PROOFS:
        trial = _try(connection)
        if not trial.is_answered:
            return f"its WAITAOF does not answer within {ANSWER_WITHIN_MS / 1000:g} s"
        proofs, failures = proofs + trial.is_proof, failures + (not trial.is_proof)
        if failures == FAILURES:
            return "its WAITAOF answers too soon to have waited for the disk"
    return ""


def _try(connection: Redis) -> Trial:
    began_s = time.monotonic()
    connection.set(KEY, "", px=DOUBTED_MS)
    written_s = time.monotonic()
    local, _ = connection.execute_command("WAITAOF", 1, 0, ANSWER_WITHIN_MS)
    waited_s = time.monotonic()
    persistence: dict[str, Any] = connection.info("persistence")
    pending = persistence.get("aof_pending_bio_fsync", "unknown")
    return Trial(written_s - began_s, waited_s - written_s, bool(local), bool(pending))
