"""Clients that stand still in the middle of a write or a read, until others use the memory."""

import random
import time

import pytest

from tests.store.fire.stage import MIB, PLACES
from tests.store.processes import eventually

pytestmark = pytest.mark.cluster

LARGE = 24 * MIB


def stop_in_the_payload(stage, writer):
    """Stop it while one write moves 24 MiB."""
    progress = stage.progress()
    assert writer.tell(["put", ["warm", MIB]]) == {"value": True}
    for number in range(1000):
        assert writer.tell(["open_write", [f"large-{number}"]]) == {"value": True}
        progress.mark()
        writer.say(["write_part", [0]])
        progress.await_change()
        writer.stop()
        if progress.changed() < LARGE // MIB - 1:
            progress.close()
            return
        writer.resume()  # it was faster
        assert writer.hear() == {"value": None}
        assert writer.tell(["commit", []]) == {"value": True}
        stage.client.remove(f"large-{number}")
    raise AssertionError("it was always faster")


def stop_before_the_header(stage, writer):
    key = "k" * 2000
    with stage.still(stage.cluster.master):
        writer.say(["open_write", [key]])
        stage.await_question(len(key))
        writer.stop()
    eventually(lambda: stage.client.open_write(key, size_bytes=1) is None, "the put was granted")


def stop_before_the_payload(writer):
    assert writer.tell(["open_write", ["no-payload"]]) == {"value": True}
    writer.stop()


def stop_between_parts(writer):
    assert writer.tell(["open_write", ["half"]]) == {"value": True}
    for part in (2, 0):
        assert writer.tell(["write_part", [part]]) == {"value": None}
    writer.stop()


def stop_before_the_end(writer):
    assert writer.tell(["open_write", ["all-but-the-end"]]) == {"value": True}
    for part in range(4):
        assert writer.tell(["write_part", [part]]) == {"value": None}
    writer.stop()


def assert_goes_on(writer, key):
    """It has taken a new identity, and all works."""
    assert writer.tell(["put", [key, MIB]]) == {"value": True}
    assert writer.tell(["get", [key, MIB]]) == {"value": True}
    assert writer.tell(["faults", []])["value"]["corrupt"] == 0


def test_a_writer_that_stood_still_at_any_moment_changes_nothing_of_what_came_after(stage):
    writers = stage.new_steppers((1, LARGE), *[(4, MIB)] * 4)
    in_payload, before_header, no_payload, half, at_end = writers
    stop_in_the_payload(stage, in_payload)
    stop_before_the_header(stage, before_header)
    stop_before_the_payload(no_payload)
    stop_between_parts(half)
    stop_before_the_end(at_end)
    stage.await_expelled(len(writers))
    if stage.is_network:
        eventually(lambda: stage.client.stats().quarantined_bytes == 0, "they are fenced")
    stage.fill("over")
    room = PLACES - 5 if stage.is_network else PLACES - 5 - LARGE // MIB * 4 - 3 * 4
    assert room - 5 <= stage.verify("over") <= PLACES
    assert (stage.client.stats().quarantined_bytes > LARGE) == (not stage.is_network)
    with stage.watched("over"):
        for writer in writers:
            writer.resume()
        assert "error" in in_payload.hear()
        opened = before_header.hear()
        assert "error" in opened or "error" in before_header.tell(["write_part", [0]])
        assert "error" in no_payload.tell(["write_part", [0]])
        assert "error" in half.tell(["write_part", [1]])
        assert "error" in at_end.tell(["commit", []])
        eventually(lambda: stage.client.stats().quarantined_bytes == 0, "all are fenced")
    assert stage.verify("over") >= room - 5
    for key in ("k" * 2000, "no-payload", "half", "all-but-the-end"):
        assert stage.client.get(key) is None, f"{key} was never committed"
    for number, writer in enumerate(writers):
        assert_goes_on(writer, f"again-{number}")
    stage.fill("once-more")
    assert stage.verify("once-more") >= PLACES - 10
    assert stage.client.read_faults == {"corrupt": 0, "stale": 0, "unreachable": 0}
    assert stage.client.stats().corrupt == 0


def test_writers_that_stood_still_at_random_moments_change_nothing(stage):
    rng = random.Random(1)
    writers = stage.new_steppers(*[(2, 6 * MIB)] * 6)
    for writer in writers:  # once without a stop
        assert writer.tell(["open_write", [f"warm-{id(writer)}"]]) == {"value": True}
        start = time.perf_counter()
        assert writer.tell(["write_and_commit", []]) == {"value": True}
        takes_s = time.perf_counter() - start
    for number, writer in enumerate(writers):
        assert writer.tell(["open_write", [f"random-{number}"]]) == {"value": True}
        end = time.perf_counter() + (rng.uniform(0, takes_s) if number else 0)
        writer.say(["write_and_commit", []])
        while time.perf_counter() < end:
            pass
        writer.stop()
    stage.await_expelled(len(writers))
    stage.fill("over")
    with stage.watched("over"):
        for writer in writers:
            writer.resume()
        ends = [writer.hear() for writer in writers]
        eventually(lambda: stage.client.stats().quarantined_bytes == 0, "all are fenced")
    assert any("error" in end for end in ends), "all were faster"
    for number, writer in enumerate(writers):
        assert_goes_on(writer, f"again-{number}")
    stage.fill("once-more")
    assert stage.verify("once-more") >= PLACES - 10
    assert stage.client.stats().corrupt == 0
