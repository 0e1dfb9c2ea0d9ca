"""Each history breaks one promise of the tasks of the shop. 0 and 4 have the limit of one, 1 and 5 the limit of two, 2
has two limits, 3 and 7 are in the lane with a rate.
"""

from __future__ import annotations

from chaos.check import orders
from chaos.evidence.aof import FOREVER, Book, Hold
from chaos.evidence.records import Evidence, HandlerRun
from chaos.systems.orders import is_rolled_back, lane_keys

Run = tuple[int, float, float]


def evidence(*runs: Run, committed: range = range(8), taken_back_s: float = FOREVER, died: bool = False) -> Evidence:
    """Runs of orders, from and until; the lease of the first one is taken back at `taken_back_s`."""
    others, book = list[HandlerRun](), Book()
    for number, from_s, until_s in runs:
        message, fence = f"order:{number}", f"{from_s * 1e6:.0f}"
        run = HandlerRun(str(len(others)), 0, tuple(lane_keys(number)), 1, fence, from_s, (), until_s, "end")
        run.message = message
        book.holds[message, fence] = Hold(message, fence, "here:1:1")
        others.append(run)
    others[0].valid_until_s = book.holds[others[0].id, others[0].fence or ""].until_s = taken_back_s
    others[0].outcome = "died" if died else "end"
    return Evidence((), (), (), (), None, book, None, {}, others, orders=committed)


def test_good_history_is_clean() -> None:
    found = evidence((0, 0, 1), (1, 0, 1), (3, 0, 1), (4, 1, 2), (5, 0.5, 2), (7, 1, 2), committed=range(2))

    assert orders.lost(found) == orders.too_many(found) == orders.out_of_order(found) == orders.too_early(found) == []
    assert orders.most_at_a_time(found) == {"one": 1, "tenant": 2}


def test_more_at_a_time_than_a_limit_allows() -> None:
    [one] = orders.too_many(evidence((0, 0, 2), (4, 1, 3)))
    assert str(one) == "one: 2 ran at 1.000: order:0, order:4"
    assert len(orders.too_many(evidence((1, 0, 3), (5, 1, 3), (2, 2, 3)))) == 1


def test_a_killed_run_keeps_its_permit_until_its_message_has_run() -> None:
    assert len(orders.too_many(evidence((0, 0, 1), (4, 2, 3), (0, 4, 5), died=True, taken_back_s=3.9))) == 1


def test_a_frozen_run_does_not_count_after_its_lease() -> None:
    frozen = evidence((0, 0, 9), (0, 4, 5), (4, 5, 6), taken_back_s=3.5)

    assert orders.too_many(frozen) == orders.wrong(frozen) == []


def test_committed_order_that_did_not_run() -> None:
    assert len(orders.lost(evidence((0, 0, 1), (1, 0, 1), committed=range(3)))) == 1
    assert len(orders.lost(evidence((0, 0, 9), committed=range(1), taken_back_s=3.5))) == 1


def test_order_of_no_transaction_or_run_again() -> None:
    assert len(orders.wrong(evidence((0, 0, 1), (1, 0, 1), committed=range(1)))) == 1
    assert len(orders.wrong(evidence((0, 0, 1), (0, 2, 3)))) == 1


def test_order_of_the_calls() -> None:
    [later] = orders.out_of_order(evidence((4, 0, 1), (0, 1, 2)))
    assert str(later) == "one: the order 0 was first handed out after 4"
    # Another one with these limits does not wait for it.
    assert orders.out_of_order(evidence((2, 0, 1), (1, 1, 2))) == []


def test_start_within_the_interval_of_a_rate() -> None:
    [early] = orders.too_early(evidence((3, 0, 0.1), (7, 0.4, 0.5)))
    assert str(early) == "the order 7 was handed out 400.0 ms after 3"


def test_some_transactions_are_rolled_back_as_a_whole() -> None:
    rolled_back = [number for number in range(80) if is_rolled_back(number)]
    assert rolled_back == [*range(24, 32), *range(64, 72)]
