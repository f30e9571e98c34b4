"""Who is alive, who only seems not to be, and what one bad node costs the others."""

import time

import pytest

from tests.store.fire.lender import Lender
from tests.store.fire.stage import MIB, Stage
from tests.store.fire.stepper import content
from tests.store.processes import TTL_S, Cluster, eventually

pytestmark = pytest.mark.cluster

KEYS, SIZE = 200, 4096


def put_all(client, prefix, count=KEYS, size=SIZE):
    for number in range(count):
        assert client.put(f"{prefix}-{number}", content(f"{prefix}-{number}", size))


def hits(client, prefix, count=KEYS, size=SIZE):
    keys = [f"{prefix}-{number}" for number in range(count)]
    return sum(client.get(key) == content(key, size) for key in keys)


def test_a_node_that_stood_still_for_half_longer_than_its_time_has_all_its_keys_again():
    stage = Stage("shm", ttl_s=TTL_S)
    try:
        put_all(stage.client, "kept")
        with stage.still(stage.cluster.nodes[0]):
            start = time.monotonic()
            eventually(lambda: stage.node.state == "suspected", "it is suspected")
            assert not stage.client.exists("kept-0")
            eventually(lambda: time.monotonic() > start + 1.5 * TTL_S, "half longer has passed")
        eventually(lambda: stage.node.state == "online", "it is back", timeout_s=TTL_S)
        assert hits(stage.client, "kept") == KEYS
        assert stage.client.stats().lost_nodes == 0
    finally:
        stage.close()


def test_a_master_that_stood_still_expels_nobody_afterwards_either():
    stage = Stage("shm", ttl_s=TTL_S)
    try:
        (stepper,) = stage.new_steppers((1, MIB))
        put_all(stage.client, "kept")
        with stage.still(stage.cluster.master):
            end = time.monotonic() + 3 * TTL_S
            eventually(lambda: time.monotonic() > end, "three times their time has passed")
        end = time.monotonic() + 1.5 * TTL_S
        while time.monotonic() < end:
            assert hits(stage.client, "kept") == KEYS
            assert stepper.tell(["get", ["kept-0", SIZE]]) == {"value": True}
        stats = stage.client.stats()
        assert (stats.lost_nodes, stats.expired_sessions, stats.fences) == (0, 0, 0)
    finally:
        stage.close()


def test_an_interpreter_that_never_pauses_keeps_its_session_and_its_leases():
    stage = Stage("shm", ttl_s=TTL_S)
    try:
        (busy,) = stage.new_steppers((1, MIB))
        assert stage.client.put("held", content("held", MIB))
        assert busy.tell(["open_read", ["held"]]) == {"value": 1}
        started = time.monotonic()
        busy.say(["keep_busy", [10]])
        number = 0
        while time.monotonic() < started + 9:
            stage.fill(f"press-{number}")
            number += 1
        assert busy.hear()["value"] > 0
        assert time.monotonic() > started + 4 * TTL_S
        assert busy.tell(["read_part", [0]]) == {"value": True}
        stats = stage.client.stats()
        assert stats.evictions > 0
        assert (stats.expired_sessions, stats.lost_nodes) == (0, 0)
    finally:
        stage.close()


@pytest.fixture
def pair():
    """A store of a node and a lender, which has more room and is given the first copies."""
    cluster = Cluster("network", nodes=1, capacity="8 MiB")
    lender = Lender(cluster.rpc, 16 * MIB, cluster.ttl_s)
    cluster.await_nodes(2)
    yield cluster, lender
    lender.close()
    cluster.close()


def times_of(client, seconds):
    """Read for so long; return how long each read took, the shortest first."""
    times, number, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        number = (number + 1) % KEYS
        start = time.perf_counter()
        value = client.get(f"both-{number}")
        times.append(time.perf_counter() - start)
        assert value is not None
    return sorted(times)


def p99(times):
    return times[len(times) * 99 // 100]


def test_a_node_that_accepts_and_never_answers_slows_only_the_first_reads(pair):
    cluster, lender = pair
    client = cluster.new_client(replicas=2, timeout_s=1.0)
    put_all(client, "both")
    before = times_of(client, 2)
    lender.relay.stall()
    while client.read_faults["unreachable"] == 0:
        assert hits(client, "both") == KEYS
    after = times_of(client, 6)
    assert p99(after) < 2 * max(p99(before), 0.005)
    lost_s = sum(each for each in after if each > 0.05)
    assert lost_s < 1, f"of 6 s, reads that waited for it took {lost_s:.2f}"
    lender.relay.resume()
    faults = client.read_faults["unreachable"]
    assert hits(client, "both") == KEYS
    assert faults > 0
