"""What a peer's `fill` sends: the updates on stdin. An empty line is answered by one, when all before it are sent."""

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
