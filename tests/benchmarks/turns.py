"""Measuring two things in turns, so that a drift of the machine hits both."""

import statistics
import time
from collections.abc import Callable

Work = Callable[[int], None]


def per_second(work: Work, count: int) -> float:
    started = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - started)


def in_turns(ours: Work, theirs: Work, *, count: int, turns: int = 7) -> tuple[float, float, float]:
    """(median rate of ours, median rate of theirs, median of the pairwise ratios), after one uncounted turn each."""
    pairs = []
    for turn in range(turns + 1):
        if turn % 2:
            a, b = per_second(ours, count), per_second(theirs, count)
        else:
            b, a = per_second(theirs, count), per_second(ours, count)
        if turn:
            pairs.append((a, b))
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
