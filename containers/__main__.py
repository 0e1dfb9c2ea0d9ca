"""make containers: builds the images, runs docker-compose.yml with podman, and sends a thousand updates through it.

Meanwhile it kills a worker, adds workers and restarts Redis.

Exits with 0 only if nothing was lost, the order was kept, and everything stopped within its grace period. Needs root
and the Debian packages that docs/operations.md names.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import requests

from chatlanes_sandbox.simulator import Simulator
from containers.images import build
from containers.stage import LEASE_S, TOKEN, ContainerHost

CHATS, EACH = 100, 10
#: From the first update to the last answer, including all disturbances.
WITHIN_S = 300.0
#: Exit codes of a clean end after SIGTERM; 137 is a kill at the end of the grace period.
ORDERLY = (0, 143)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="chatlanes-containers-") as folder:
        stage = ContainerHost(Path(folder))
        say("preparing, and building the images")
        stage.prepare()
        build(stage)
        stage.compose("down", "--volumes")
        try:
            faults = rehearse(stage)
        finally:
            stage.compose("down", "--volumes")
    say("result: " + ("; ".join(faults) or "nothing lost, order kept, everything stopped within its grace period"))
    sys.exit(bool(faults))


def rehearse(stage: ContainerHost) -> list[str]:
    """The faults, one sentence each."""
    services = ("telegram", "redis", "poller", "worker", "flower", "metrics", "prometheus")
    say(f"starting {', '.join(services)}")
    stage.compose("up", "-d", "--no-build", *services)
    telegram = Simulator("http://127.0.0.1:8081", TOKEN)
    for service in services[1:2] + services[3:]:
        until(f"{service} is healthy", lambda: stage.is_healthy(f"chatlanes_{service}_1"))  # noqa: B023 - called here
    until("Prometheus reads the metrics", scraped)
    started_s = time.monotonic()
    disturb(stage, telegram)
    until("every update is answered", lambda: answered(telegram) >= CHATS * EACH, fails=False)
    say(f"{answered(telegram)} answers, {time.monotonic() - started_s:.0f} s after the first update")
    say(stage.compose("exec", "-T", "worker", "celery", "-A", "chatlanes", "lanes", "check").strip())
    return judge(telegram) + stop(stage)


def disturb(stage: ContainerHost, telegram: Simulator) -> None:
    """Sends a thousand updates in four parts, with a disturbance between two parts."""
    send(telegram, 1)
    until("a part is answered", lambda: answered(telegram) > CHATS)
    pid = int(stage.podman("inspect", "--format", "{{.State.Pid}}", "chatlanes_worker_1"))
    say("kill -9 of the worker's container")
    os.kill(pid, signal.SIGKILL)
    send(telegram, 2)
    say("scaling workers to 3")
    stage.scale_workers(3)
    send(telegram, 3)
    say("restarting Redis")
    stage.compose("restart", "redis")
    send(telegram, 4)


def send(telegram: Simulator, part: int) -> None:
    """Sends one of four parts; messages are numbered within each chat."""
    numbers = range(EACH * (part - 1) // 4 + 1, EACH * part // 4 + 1)
    telegram.push(*(message(chat, number) for number in numbers for chat in range(1, CHATS + 1)))


def message(chat: int, number: int) -> dict[str, object]:
    person = {"id": chat, "is_bot": False, "first_name": f"User {chat}"}
    where = {"id": chat, "type": "private"}
    content = {"message_id": number, "date": int(time.time()), "text": f"#{number}", "from": person, "chat": where}
    return {"message": content}


def answered(telegram: Simulator) -> int:
    """The number of updates with at least one answer."""
    return sum(len(set(numbers)) for numbers in telegram.answers().values())


def judge(telegram: Simulator) -> list[str]:
    lost = CHATS * EACH - answered(telegram)
    summary = telegram.stats()["answers"]
    say(f"answered twice: {summary['duplicates']}; out of order: {summary['out_of_order']}")
    return [
        *([f"{lost} updates were not answered within {WITHIN_S:.0f} s"] if lost else ()),
        *(["answers out of order"] if not summary["in_order"] else ()),
    ]


def stop(stage: ContainerHost) -> list[str]:
    """Stops all containers, Redis last, as Docker does; each container that had to be killed is a fault."""
    say("stopping everything")
    started_s = time.monotonic()
    stage.compose("stop", "poller", "worker", "flower", "prometheus", "metrics")
    stage.compose("stop", "redis", "telegram")
    ended = stage.containers()
    say(f"stopped after {time.monotonic() - started_s:.0f} s: " + ", ".join(f"{n} {c}" for n, c in ended.items()))
    return [f"{name} ended with {code}" for name, code in ended.items() if code not in ORDERLY]


def scraped() -> bool:
    try:
        answer = requests.get("http://127.0.0.1:9090/api/v1/targets", timeout=10).json()
    except requests.RequestException:
        return False
    return [target["health"] for target in answer["data"]["activeTargets"]] == ["up"]


def until(what: str, holds: Callable[[], bool], *, fails: bool = True) -> None:
    give_up_at_s = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > give_up_at_s:
            sys.exit(f"timed out after {WITHIN_S:.0f} s, waiting until {what}") if fails else None
            return
        time.sleep(LEASE_S / 10)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 - this is a command-line program


if __name__ == "__main__":
    main()
