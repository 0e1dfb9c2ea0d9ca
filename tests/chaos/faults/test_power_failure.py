"""After a power failure, a server that the poller called durable has all confirmed updates."""

from pathlib import Path

import pytest

from chaos.faults.power_failure import can_trace, power_failure, unsynced

pytestmark = pytest.mark.slow

needs_strace = pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")


@needs_strace
@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_durable_server_loses_nothing(tmp_path: Path, appendfsync: str) -> None:
    outcome = power_failure(tmp_path, appendfsync)
    assert outcome.confirmed >= 300
    assert outcome.is_kept, outcome
    # With fsync always the poller logs that Redis is durable
    assert ("Redis is durable" in outcome.durability) == (appendfsync == "always"), outcome


def test_fsync_covers_earlier_writes_only() -> None:
    trace = """\
7 write(4</srv/redis/a.1.incr.aof>, ""..., 100) = 100
7 write(9<socket:[5]>, ""..., 5) = 5
8 fdatasync(4</srv/redis/a.1.incr.aof> <unfinished ...>
7 write(4</srv/redis/a.1.incr.aof>, ""..., 20 <unfinished ...>
8 <... fdatasync resumed>) = 0
7 <... write resumed>) = 20
7 write(4</srv/redis/a.1.incr.aof>, ""..., 3) = 3
8 fdatasync(4</srv/redis/a.1.incr.aof> <unfinished ...>
7 write(5</srv/redis/b.1.incr.aof>, ""..., 6) = 6
8 fdatasync(5</srv/redis/b.1.incr.aof>) = 0
8 fdatasync(4</srv/redis/a.1.incr.aof>) = -1 EIO (Input/output error)
7 +++ killed by SIGKILL +++
"""
    assert unsynced(trace) == {"/srv/redis/a.1.incr.aof": 23, "/srv/redis/b.1.incr.aof": 0}
