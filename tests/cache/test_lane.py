"""A lane runs tasks in order, and skips the rest after a failure."""

import threading

import pytest

from mooncake_core.cache.lane import Lane


def test_tasks_run_in_the_order_of_submission() -> None:
    lane, seen = Lane("test", 100), list[int]()
    for value in range(50):
        lane.submit(lambda value=value: seen.append(value))
    lane.close()
    lane.done.result(5)
    assert seen == list(range(50))


def test_a_failure_skips_the_rest_and_is_told() -> None:
    lane, seen = Lane("test", 100), list[int]()
    lane.submit(lambda: seen.append(1))
    lane.submit(lambda: seen.remove(7))
    lane.submit(lambda: seen.append(2))
    lane.close()
    with pytest.raises(ValueError, match="not in list"):
        lane.done.result(5)
    assert seen == [1]
    assert isinstance(lane.failure, ValueError)


def test_submit_blocks_while_the_queue_is_full() -> None:
    lane, gate, entered = Lane("test", 1), threading.Event(), threading.Event()
    lane.submit(lambda: (entered.set(), gate.wait(5))[0])
    entered.wait(5)
    lane.submit(lambda: None)
    blocked = threading.Thread(target=lambda: lane.submit(lambda: None))
    blocked.start()
    assert lane.backlog == 1 and blocked.is_alive()
    gate.set()
    blocked.join(5)
    lane.close()
    lane.done.result(5)


def test_a_stopped_lane_skips_what_has_not_begun() -> None:
    lane, gate, entered, seen = Lane("test", 9), threading.Event(), threading.Event(), list[int]()
    lane.submit(lambda: (entered.set(), gate.wait(5))[0])
    lane.submit(lambda: seen.append(1))
    entered.wait(5)
    lane.stop(ValueError("enough"))
    gate.set()
    lane.close()
    with pytest.raises(ValueError, match="enough"):
        lane.done.result(5)
    assert seen == []
