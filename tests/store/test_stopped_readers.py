"""Clients that stand still in the middle of a read, until others use the memory."""

import time

import pytest

from tests.store.fire.moments import PLACES as POINTS
from tests.store.fire.stage import MIB, PLACES
from tests.store.fire.stepper import content
from tests.store.processes import eventually

pytestmark = pytest.mark.cluster

LARGE = 24 * MIB
HIT, MISS = {"value": True}, {"value": None}


def stop_in_one_read(stage, reader):
    """Stop it while one read moves 24 MiB."""
    assert reader.tell(["open_read", ["large"]]) == {"value": 1}
    if stage.is_network:  # the answer fills the sockets, and the node waits
        assert reader.tell(["read_part", [0]]) == HIT
        with stage.still(stage.cluster.nodes[0]):
            reader.say(["read_part", [0]])
            stage.await_request()
            reader.stop()
        return
    progress = stage.progress_of(reader, LARGE)
    for _ in range(1000):
        progress.mark()
        reader.say(["read_part", [0]])
        progress.await_change()
        reader.stop()
        if progress.changed() < POINTS - 1:
            break
        reader.resume()  # it was faster
        assert reader.hear() == HIT
        assert reader.tell(["open_read", ["large"]]) == {"value": 1}
    else:
        raise AssertionError("it was always faster")
    progress.close()


def test_a_reader_that_stood_still_misses_once_others_use_the_memory(stage):
    in_read, before_read, half = stage.new_steppers((1, LARGE), (1, MIB), (4, 4 * MIB))
    for key, size in (("large", LARGE), ("small", MIB)):
        assert stage.client.put(key, content(key, size))
    assert half.tell(["open_write", ["parts"]]) == HIT
    assert half.tell(["write_and_commit", []]) == HIT

    assert before_read.tell(["open_read", ["small"]]) == {"value": 1}
    before_read.stop()
    assert half.tell(["open_read", ["parts"]]) == {"value": 1}
    assert half.tell(["read_part", [0]]) == half.tell(["read_part", [3]]) == HIT
    half.stop()
    stop_in_one_read(stage, in_read)
    stage.await_expelled(3)
    stage.fill("over")
    assert stage.verify("over") >= PLACES - 5, "all of the memory was used again"
    assert stage.client.stats().quarantined_bytes == 0, "readers hold nothing up"

    for reader in (in_read, before_read, half):
        reader.resume()
    assert in_read.hear() == MISS
    assert before_read.tell(["read_part", [0]]) == MISS
    assert half.tell(["read_part", [1]]) == half.tell(["read_part", [2]]) == MISS
    for reader in (in_read, before_read, half):
        faults = reader.tell(["faults", []])["value"]
        assert faults["stale"] >= 1
        assert (faults["corrupt"], faults["unreachable"]) == (0, 0)
        hits = [reader.tell(["get", [f"over-{n}", MIB // 4]])["value"] for n in range(300)]
        assert False not in hits
        assert hits.count(True) >= 200
    assert stage.client.stats().corrupt == 0


def test_what_a_holder_that_stood_still_views_is_not_used_again_until_it_lets_go(stage):
    holder, victim = stage.new_steppers((1, 4 * MIB), (1, 4 * MIB))
    for key, one in (("seen", holder), ("seen-by-the-victim", victim)):
        assert stage.client.put(key, content(key, 4 * MIB))
        assert one.tell(["open_view", [key]]) == {"value": stage.is_network}
    if stage.is_network:  # it was pinned only while it was copied, and soon the master knows
        eventually(lambda: stage.client.stats().leases == 0, "what is a copy is let go")
    holder.stop()
    victim.stop()
    stage.await_expelled(2)
    stage.fill("over")
    assert stage.verify("over") >= PLACES - 45
    there = stage.there("seen", "seen-by-the-victim", "nothing")
    assert there == [not stage.is_network] * 2 + [False], stage.client.stats()
    victim.kill()
    holder.resume()
    assert holder.tell(["look", []]) == HIT
    assert holder.tell(["get", ["over-300", MIB // 4]]) == HIT

    def press():
        stage.fill(f"press-{time.monotonic()}")
        return stage.there("seen-by-the-victim") == [False]

    eventually(press, "what the victim viewed is free")
    assert holder.tell(["look", []]) == HIT
    assert holder.tell(["close_view", []]) == MISS
    eventually(lambda: stage.client.stats().leases == 0, "the master knows that it was let go")
    stage.fill("once-more")
    assert stage.there("seen") == [False]
    assert stage.verify("once-more") >= PLACES - 10
    stats = stage.client.stats()
    assert (stats.corrupt, stats.quarantined_bytes) == (0, 0)
