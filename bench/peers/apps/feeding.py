"""Reads updates from stdin for a peer's `fill`. An empty line is answered with one after all updates before it are
sent.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def updates() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        if line.strip():
            yield json.loads(line)
        else:
            print(flush=True)
