"""The judge must find what is wrong: histories made by hand, each with one thing that must not be."""

from typing import Any

from chaos.checker import Freeze, Verdict, check

LEASE_S = 3.0


class History:
    """Writes records as chaos/bot.py does."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._runs = 0

    def run(
        self,
        update: int,
        from_s: float,
        to_s: float | None,
        *,
        pid: int = 1,
        keys: tuple[str, ...] = ("chat:7",),
        end: str = "end",
    ) -> "History":
        self._runs += 1
        record = {"id": update, "keys": list(keys), "pid": pid, "run": str(self._runs)}
        self.records.append({**record, "what": "start", "at_s": from_s})
        if to_s is not None:
            self.records.append({**record, "what": end, "at_s": to_s})
        return self

    def judged(
        self, *, expected: range, killed: dict[int, float] | None = None, freezes: tuple[Freeze, ...] = ()
    ) -> Verdict:
        return check(self.records, expected=expected, killed=killed or {}, freezes=freezes, lease_s=LEASE_S)


def test_a_good_history_is_clean() -> None:
    history = History().run(1, 0.0, 1.0).run(2, 1.0, 2.0, pid=2).run(3, 0.5, 0.7, keys=("chat:8",))

    verdict = history.judged(expected=range(1, 4))

    assert verdict.is_clean
    assert (verdict.updates, verdict.runs, verdict.duplicates) == (3, 3, 0)


def test_an_update_that_never_ran_is_lost() -> None:
    assert History().run(1, 0.0, 1.0).judged(expected=range(1, 3)).lost == ["update 2 never finished"]


def test_an_update_whose_only_run_died_is_lost() -> None:
    assert len(History().run(1, 0.0, None).judged(expected=range(1, 2), killed={1: 0.5}).lost) == 1


def test_a_death_and_a_second_run_are_no_offence() -> None:
    history = History().run(1, 0.0, None).run(1, 4.0, 5.0, pid=2).run(2, 5.0, 6.0, pid=2)

    verdict = history.judged(expected=range(1, 3), killed={1: 0.5})

    assert verdict.is_clean
    assert verdict.duplicates == 0


def test_a_later_update_that_starts_first_is_out_of_order() -> None:
    assert len(History().run(2, 0.0, 1.0).run(1, 1.0, 2.0).judged(expected=range(1, 3)).out_of_order) == 1


def test_an_update_that_starts_before_the_one_before_it_has_finished_is_out_of_order() -> None:
    # The first run of 1 died; 2 must wait until 1 has run again.
    history = History().run(1, 0.0, None).run(2, 1.0, 2.0, pid=2).run(1, 4.0, 5.0, pid=2)

    assert len(history.judged(expected=range(1, 3), killed={1: 0.5}).out_of_order) == 2


def test_two_runs_of_one_key_at_a_time_overlap() -> None:
    history = History().run(1, 0.0, 2.0).run(2, 1.0, 3.0, pid=2)

    assert len(history.judged(expected=range(1, 3)).overlaps) == 1


def test_a_run_overlaps_on_any_of_its_keys() -> None:
    history = History().run(1, 0.0, 2.0, keys=("chat:7", "user:1")).run(2, 1.0, 3.0, keys=("chat:8", "user:1"))

    [overlap] = history.judged(expected=range(1, 3)).overlaps

    assert overlap.startswith("user:1: 2 started")


def test_a_run_that_nobody_ended_or_killed_overlaps_with_what_follows() -> None:
    history = History().run(1, 0.0, None).run(1, 9.0, 9.5, pid=2)

    assert len(history.judged(expected=range(1, 2)).overlaps) == 1


def test_whoever_takes_over_from_a_frozen_worker_is_in_the_right() -> None:
    history = History().run(1, 0.0, 8.0).run(1, 4.0, 5.0, pid=2).run(2, 5.0, 6.0, pid=2)

    verdict = history.judged(expected=range(1, 3), freezes=(Freeze(1, 0.5, 7.5),))

    assert verdict.is_clean
    assert verdict.duplicates == 1


def test_a_short_freeze_excuses_nothing() -> None:
    history = History().run(1, 0.0, 8.0).run(1, 4.0, 5.0, pid=2)

    assert len(history.judged(expected=range(1, 2), freezes=(Freeze(1, 0.5, 1.0),)).overlaps) == 1


def test_a_poison_update_is_finished_when_it_has_raised_for_the_last_time() -> None:
    history = History().run(1, 0.0, 0.1, end="raise").run(1, 1.0, 1.1, end="raise").run(2, 1.2, 1.3)

    assert history.judged(expected=range(1, 3)).is_clean
    assert (
        len(
            History()
            .run(1, 0.0, 0.1, end="raise")
            .run(2, 0.2, 0.3)
            .run(1, 1.0, 1.1, end="raise")
            .judged(expected=range(1, 3))
            .out_of_order
        )
        == 2
    )
