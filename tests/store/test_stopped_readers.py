"""Clients that stand still in the middle of a read, until others use the memory."""

import pytest

from tests.store.fire.moments import PLACES as POINTS
from tests.store.fire.stage import MIB, PLACES
from tests.store.fire.stepper import content

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
    for _ in range(20):
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
