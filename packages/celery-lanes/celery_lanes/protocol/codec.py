"""JSON and the Redis protocol as bytes: by orjson and hiredis if celery-lanes[fast] is installed, otherwise by
plain_codec.py.

This is the only place that chooses. Guarantees that both write the same bytes and read what the other has written.
"""

from __future__ import annotations

from typing import Any

from redis._parsers.base import BaseParser
from redis.exceptions import InvalidResponse

try:
    from hiredis import Reader, pack_command
    from orjson import OPT_NON_STR_KEYS, dumps, loads
except ImportError:
    from celery_lanes.protocol.plain_codec import (  # type: ignore[assignment]
        OPT_NON_STR_KEYS,
        dumps,
        loads,
        pack_command,
        reader_of,
    )
else:

    def reader_of(connection: Any) -> Any:
        """Reads answers. `gets` returns False until `feed` was given a whole one; errors are returned, not raised."""
        return Reader(protocolError=InvalidResponse, replyError=BaseParser.parse_error)


__all__ = ["OPT_NON_STR_KEYS", "dumps", "loads", "pack_command", "reader_of"]
