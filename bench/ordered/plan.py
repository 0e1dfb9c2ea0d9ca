"""The rows of the referee, and the messages of each. All systems get the same messages at the same moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

#: The key that is slow, or always fails, in the rows about one such key.
SPECIAL = "key0"
Fault = Literal["", "kill worker", "kill server", "freeze worker"]


class Message(NamedTuple):
    """One line of a plan: published `at_ms` after the producer starts; its handler waits `work_ms`, then may fail."""

    at_ms: int
    key: str
    number: int
    work_ms: int
    fails: int


@dataclass(frozen=True)
class Row:
    """`per_second` 0: all messages are acknowledged before workers start. `fault_at_s` counts from the first begin."""

    name: str
    keys: int
    messages: int
    work_ms: int = 0
    per_second: int = 0
    special_ms: int = 0
    special_fails: bool = False
    fault: Fault = ""
    fault_at_s: float = 0.0
    rounds: int | None = None

    @property
    def has_special(self) -> bool:
        return bool(self.special_ms or self.special_fails)

    def plan(self) -> Iterator[Message]:
        """The keys take turns; the messages of a key are numbered from 0."""
        for each in range(self.messages):
            key, number = f"key{each % self.keys}", each // self.keys
            is_special = self.has_special and key == SPECIAL
            at_ms = each * 1000 // self.per_second if self.per_second else 0
            work_ms = self.special_ms if is_special and self.special_ms else self.work_ms
            yield Message(at_ms, key, number, work_ms, int(is_special and self.special_fails))


@dataclass(frozen=True)
class Scale:
    """`lease_s` is what each system's documented setting for it gets; `limit_s` ends a row that is not done by then.
    Messages that are missing after `patience_s` without any progress count as lost.
    """

    rows: tuple[Row, ...]
    rounds: int
    lease_s: int
    limit_s: float
    patience_s: float


def _live(name: str, seconds: int, fault: Fault = "", fault_at_s: float = 0.0, **special: bool | int) -> Row:
    """100 messages a second for 50 keys: 5 of them run at any time."""
    return Row(name, 50, 100 * seconds, 50, 100, fault=fault, fault_at_s=fault_at_s, **special)  # type: ignore[arg-type]


#: In less than half an hour: starting the 32 processes of a system with hashed queues takes most of it.
QUICK = Scale(
    (
        Row("1 key", 1, 300),
        Row("5,000 keys", 5_000, 5_000),
        Row("500 keys, 50 ms", 500, 1_000, 50),
        _live("one slow key", 6, special_ms=1_000),
        _live("one key fails", 6, special_fails=True),
        _live("kill -9 of a worker", 6, "kill worker", 2.0),
        Row("kill -9 of the server", 500, 2_000, 50, fault="kill server", fault_at_s=1.5),
        _live("a worker frozen for two leases", 6, "freeze worker", 2.0),
    ),
    rounds=1,
    lease_s=3,
    limit_s=75.0,
    patience_s=30.0,
)
FULL = Scale(
    (
        Row("1 key", 1, 1_000),
        Row("500 keys", 500, 20_000),
        Row("50,000 keys", 50_000, 50_000),
        Row("500 keys, 50 ms", 500, 5_000, 50),
        _live("one slow key", 20, special_ms=1_000),
        _live("one key fails", 20, special_fails=True),
        _live("kill -9 of a worker", 30, "kill worker", 5.0),
        Row("kill -9 of the server", 500, 5_000, 50, fault="kill server", fault_at_s=3.0),
        _live("a worker frozen for two leases", 30, "freeze worker", 5.0),
        Row("a backlog of a million", 1_000, 1_000_000, rounds=1),
    ),
    rounds=3,
    lease_s=15,
    limit_s=120.0,
    patience_s=150.0,
)
WARM_UP = Row("warm-up", 16, 16)


def write(messages: Iterator[Message], file: Path, prefix: str = "") -> None:
    with file.open("w") as lines:
        lines.writelines(
            f"{each.at_ms} {prefix}{each.key} {each.number} {each.work_ms} {each.fails}\n" for each in messages
        )
