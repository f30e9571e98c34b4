"""Nodes to which a write has failed: the master takes them last, for a moment, and no more."""

from __future__ import annotations

import pytest

from tests.store import wire
from tests.store.core import Store

MOMENT_S = 2.0
SIZE = 4000


def node_of(store, key):
    """Start a put, abort it, and return the node that was chosen."""
    reply, item = store.start(key, SIZE)
    [(node, _)] = reply.places()
    store.step(wire.PutAbort(store.session, [wire.AbortItem(item.put_id)]))
    return node


def fail(store, node, *, named=None):
    """Abort a put on this node, whose write there has failed."""
    reply, item = store.start(b"fails", 100, preferred=[b"n%d" % node])
    assert [place[0] for place in reply.places()] == [node]
    aborted = wire.AbortItem(item.put_id, failed=[node] if named is None else named)
    assert store.step(wire.PutAbort(store.session, [aborted])).outcomes == [wire.DONE]


def wait_until(store, now_s):
    """Let time pass in steps in which the master need not think that it was stopped."""
    while store.now_s < now_s:
        store.now_s = min(store.now_s + 0.25, now_s)
        store.step(wire.Heartbeat(store.session, []))


def fill(store, node, count):
    for number in range(count):
        store.put(b"%d on %d" % (number, node), SIZE, preferred=[b"n%d" % node])


def test_a_doubted_node_is_taken_last_until_its_time_is_over():
    store = Store(nodes=2)
    fill(store, 2, 1)
    assert node_of(store, b"a") == 1
    fail(store, 1)
    store.step(wire.NodeHeartbeat(1))  # it lives, but a writer may be cut off from it
    assert node_of(store, b"a") == 2
    wait_until(store, MOMENT_S - 0.1)
    assert node_of(store, b"a") == 2
    wait_until(store, MOMENT_S)
    assert node_of(store, b"a") == 1


def test_a_doubt_that_is_raised_again_begins_anew():
    store = Store(nodes=2)
    fill(store, 2, 1)
    fail(store, 1)
    fail(store, 2)
    wait_until(store, 1.0)
    fail(store, 1)
    wait_until(store, MOMENT_S)
    assert node_of(store, b"a") == 2
    wait_until(store, 1.0 + MOMENT_S)
    assert node_of(store, b"a") == 1


def test_a_copy_that_a_put_ends_without_raises_a_doubt():
    store = Store(nodes=3)
    reply, item = store.start(b"k", SIZE, replicas=2)
    kept, lost = (node for node, _ in reply.places())
    end = wire.EndItem(item.put_id, b"k", reply.items[0].generation, lost=[1], failed=[lost])
    assert store.step(wire.PutEnd(store.session, [end], b"crc!")).outcomes == [wire.DONE]
    [other] = {1, 2, 3} - {kept, lost}
    assert node_of(store, b"a") == other
    fill(store, other, 2)
    assert node_of(store, b"a") == kept


def test_objects_are_evicted_before_a_doubted_node_is_taken():
    store = Store(nodes=2, capacity=20_000)
    fill(store, 2, 4)
    fail(store, 1)
    assert store.put(b"new", SIZE) == wire.STARTED
    assert store.stats().counters.evictions == 1
    assert store.describe(b"new").copies == store.describe(b"3 on 2").copies


@pytest.mark.parametrize("doubted", [[1], [1, 2]])
def test_doubts_refuse_nothing(doubted):
    store = Store(nodes=2, capacity=20_000)
    for node in doubted:
        fail(store, node)
    for number in range(8):
        assert store.put(b"%d" % number, SIZE, pin=wire.HARD_PIN) == wire.STARTED
    assert store.put(b"one too many", SIZE) == wire.OUT_OF_SPACE
    assert len(store.list()) == 8


def test_nodes_that_were_not_granted_cannot_be_doubted():
    store = Store(nodes=2)
    fill(store, 2, 1)
    fail(store, 2, named=[1, 99])
    assert node_of(store, b"a") == 1


def test_a_node_that_is_lost_takes_its_doubt_along():
    store = Store(nodes=1)
    fail(store, 1)
    store.core.native.node_disconnected(1, store.now_s)
    store.step(wire.register(2, 77, b"host:2", 64 << 10, name=b"n2"))
    assert node_of(store, b"a") == 2
    wait_until(store, MOMENT_S)
    assert node_of(store, b"a") == 2
