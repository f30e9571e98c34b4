"""What measurements come to."""

from array import array

import pytest

from mooncake_core.store_bench.messages import Measured, ThreadDone
from mooncake_core.store_bench.plan import Case
from mooncake_core.store_bench.report import make_row
from mooncake_core.store_bench.tally import Count, Tally

CASE = Case(operation="get", size_bytes=1000, batch=2, threads=1)


def thread(
    hits: int = 4, *, latencies: tuple[float, ...] = (0.1, 0.3), wrong: int = 0, failures: int = 0
) -> ThreadDone:
    count = Count(
        calls=len(latencies),
        keys=2 * len(latencies),
        hits=hits,
        latencies=array("d", latencies).tobytes(),
    )
    return ThreadDone(
        counts={"get": count} if latencies else {},
        failures={"OutOfSpace": failures} if failures else {},
        called_s=sum(latencies) + failures,
        wrong=wrong,
        first_wrong="byte 7" if wrong else "",
    )


def measured(*threads: ThreadDone, corrupt: int = 0, evictions: int = 0) -> Measured:
    return Measured(threads=list(threads), read_faults={"corrupt": corrupt}, evictions=evictions)


def test_the_rate_is_the_sum_of_what_each_thread_did_in_its_calls() -> None:
    row = make_row(CASE, [[measured(thread(), thread()), measured(thread())]], [])
    (result,) = row.operations
    assert result.ops_per_s == pytest.approx(3 * 4 / 0.4)
    assert result.gb_per_s == pytest.approx(3 * 4 * 1000 / 0.4 / 1e9)
    assert (result.calls, result.keys, result.hit_ratio) == (6, 12, 1)
    assert result.latency.p50_s == 0.1 and result.latency.max_s == 0.3
    assert not row.is_bad


def test_misses_move_no_bytes() -> None:
    (result,) = make_row(CASE, [[measured(thread(hits=1))]], []).operations
    assert result.hit_ratio == 0.25 and result.gb_per_s == pytest.approx(1000 / 0.4 / 1e9)


def test_failed_calls_take_time_and_are_told_by_their_error() -> None:
    row = make_row(CASE, [[measured(thread(failures=2))]], [])
    assert row.failures == {"OutOfSpace": 2}
    assert row.operations[0].ops_per_s == pytest.approx(4 / 2.4)


def test_the_median_of_the_measurements_and_their_spread_are_told() -> None:
    samples = [[measured(thread(latencies=(seconds,)))] for seconds in (0.1, 0.2, 0.4)]
    (result,) = make_row(CASE, samples, []).operations
    assert result.ops_per_s == pytest.approx(10) and result.spread > 0.4


def test_wrong_bytes_outside_of_the_measurements_count() -> None:
    last = [measured(thread(latencies=(), wrong=3))]
    row = make_row(CASE, [[measured(thread())]], [last])
    assert row.is_bad and row.wrong == 3 and row.first_wrong == "byte 7"


def test_what_checksums_found_and_having_no_success_are_bad() -> None:
    assert make_row(CASE, [[measured(thread(), corrupt=1)]], []).is_bad
    assert make_row(CASE, [[measured(thread(latencies=(), failures=1))]], []).is_bad


def test_evictions_that_every_client_saw_are_counted_once() -> None:
    both = [measured(thread(), evictions=5), measured(thread(), evictions=4)]
    assert make_row(CASE, [both, both], []).evictions == 10


def test_a_tally_keeps_each_operation_apart() -> None:
    tally = Tally()
    tally.note("put", 0.5, 2, 1)
    tally.note("get", 0.25, 1, 0)
    tally.note_failure(ValueError("no"), 1.0)
    counts = tally.close().counts
    assert counts["put"] == Count(calls=1, keys=2, hits=1, latencies=array("d", [0.5]).tobytes())
    assert counts["get"].hits == 0
    assert tally.called_s == 1.75 and tally.failures == {"ValueError": 1}
