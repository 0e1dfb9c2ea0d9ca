"""`python -m chaos.simulation --seed 7 --steps 2000`: simulates runs of many workers on the real scripts.

The same seed gives the same run. If a promise is broken, it prints the seed, and the shortest run that it finds which
breaks it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from redis.exceptions import RedisError

from celery_lanes.embedded_server import start_server
from celery_lanes.protocol import Store, connect
from chaos.simulation.promises import PromiseBrokenError
from chaos.simulation.world import Step, World, steps
from spec.conformance.judge import judge
from spec.conformance.monitor import Recorder


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="simulation-") as scratch,
        start_server(Path(scratch), appendfsync="no", ends_with_parent=True) as server,
        connect(server.url) as client,
    ):
        store = Store(client)
        if arguments.conformance:
            return _conforms(store, server.port, arguments.keep or Path(scratch) / "monitor", arguments)
        return _runs(store, arguments)


def _runs(store: Store, arguments: argparse.Namespace) -> int:
    begun_s, done = time.monotonic(), 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        planned = steps(seed, arguments.steps)
        if broken := broken_by(store, planned):
            print(f"seed {seed}: {broken}")  # noqa: T201
            shortest = shrunk(store, planned)
            print(f"The shortest run found has {len(shortest)} steps: {broken_by(store, shortest)}")  # noqa: T201
            print("\n".join(f"  {step.what} {step.seed}" for step in shortest))  # noqa: T201
            return 1
        done += arguments.steps
    taken_s = time.monotonic() - begun_s
    print(f"{done:,} steps kept all promises; {done / taken_s:,.0f} steps a second")  # noqa: T201
    return 0


def broken_by(store: Store, planned: Sequence[Step]) -> str:
    """The promise that these steps break; empty if they keep all."""
    world = World(store)
    try:
        for step in planned:
            world.do(step)
        world.finish()
    except (PromiseBrokenError, RedisError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shrunk(store: Store, planned: Sequence[Step]) -> list[Step]:
    """Fewer steps that break a promise too: parts are left out, ever smaller ones."""
    left, size = list(planned), len(planned) // 2
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if broken_by(store, fewer):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def _conforms(store: Store, port: int, folder: Path, arguments: argparse.Namespace) -> int:
    recorder = Recorder(port, folder)
    recorder.start()
    recorder.started.wait()
    broken = broken_by(store, steps(arguments.seed, arguments.steps))
    recorder.end()
    if broken:
        print(broken)  # noqa: T201
        return 1
    report = judge(folder)
    print("\n".join(report.lines()))  # noqa: T201
    return 1 if report.divergence else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.simulation", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 100_000, help="of the first run (default: the clock)"
    )
    parser.add_argument("--runs", type=int, default=20, help="each with the next seed (default: 20)")
    parser.add_argument("--steps", type=int, default=2_000, help="of each run (default: 2,000)")
    parser.add_argument("--conformance", action="store_true", help="one run; compare each call with the specification")
    parser.add_argument("--keep", type=Path, help="a new folder for the recorded calls (default: nothing is kept)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
