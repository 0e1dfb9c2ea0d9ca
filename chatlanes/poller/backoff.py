"""How long to wait before trying again. Pure.

Promises a wait that doubles with every failure up to a limit, spread so that many processes do not return at once.
"""

FIRST_S = 1.0
#: 2 ** 10 failures' worth of doubling passes every limit in use; more would only overflow.
DOUBLINGS = 10
#: A `retry_after` of 0 is taken at its word nowhere: it would ask again without a pause.
LEAST_S = 0.5
#: An absurd `retry_after` must not stop the poller for ever: after this time the server is asked again.
LONGEST_RETRY_AFTER_S = 3600.0


def delay_s(failures: int, longest_s: float, spread: float, retry_after_s: float | None = None) -> float:
    """Seconds to wait after so many `failures` in a row (the first is 1).

    `spread`, in 0 … 1, places the wait within the upper half of its range (AWS Architecture Blog, "Exponential
    Backoff and Jitter": equal jitter). `retry_after_s` is the other side's own wish, any number but NaN, and wins over
    `longest_s`.
    """
    if retry_after_s is not None:
        return min(max(retry_after_s, LEAST_S), LONGEST_RETRY_AFTER_S)
    ceiling_s = min(FIRST_S * 2.0 ** min(failures - 1, DOUBLINGS), longest_s)
    return ceiling_s * (0.5 + 0.5 * spread)
