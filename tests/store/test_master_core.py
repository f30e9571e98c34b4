"""The master core by hand: one store, one clock, few clients."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest

from mooncake_core.native import _native
from tests.store import wire
from tests.store.core import EPOCH, LEASE_S, TTL_S, chunks, extent_bytes


def checksums(size):
    return b"crc!" * chunks(size)


def put(core, session, key, size, now_s, put_id, replicas=1):
    start = wire.put_start(session, wire.PutItem(put_id, key, size), replicas=replicas)
    granted = core.step(start, now_s).items[0]
    if granted.outcome == wire.STARTED:
        end = wire.EndItem(put_id, key, granted.generation, checksums=chunks(size))
        reply = core.step(wire.PutEnd(session, [end], checksums(size)), now_s)
        assert reply.outcomes == [wire.DONE]
    return granted


def one_node(capacity=64 << 10, nodes=1):
    core = wire.Core(_native, epoch=EPOCH, client_ttl_s=TTL_S, lease_s=LEASE_S)
    for node in range(1, nodes + 1):
        core.step(wire.register(node, EPOCH, b"n:%d" % node, capacity), 0.0)
    session = core.step(wire.Hello(0, 5), 0.0, fresh_id=9).session
    return core, session


def test_a_message_with_more_than_1024_keys_is_refused():
    core, session = one_node()
    keys = [b"%d" % at for at in range(1025)]
    for message in (
        wire.Lookup(session, False, False, [], keys),
        wire.Lookup(session, False, False, list(range(1025)), []),
        wire.Release(session, list(range(1025))),
        wire.put_start(session, *(wire.PutItem(at + 1, key, 1) for at, key in enumerate(keys))),
    ):
        with pytest.raises(_native.Error, match="a list of 1025; at most 1024"):
            core.step(message, 0.0)
    assert core.step(wire.Lookup(session, False, False, [], keys[1:]), 0.0).is_known


def test_a_node_fences_thousands_in_turns():
    core, _ = one_node(capacity=1 << 20)
    for at in range(1500):
        session = core.step(wire.Hello(0, 100 + at), 0.0, fresh_id=100 + at).session
        start = wire.put_start(session, wire.PutItem(1, b"%d" % at, 1))
        assert core.step(start, 0.0).items[0].outcome == wire.STARTED
        core.call(wire.GOODBYE, wire.One(session), None, 0.0)
    fenced, asked = [], [1024, 476, 0]
    for count in asked:
        fenced = core.step(wire.NodeHeartbeat(1, fenced), 0.0).fence
        assert len(fenced) == count
    while core.native.has_background:
        core.native.run_slice(0.0)
    assert core.stats().space.used == 0


def test_hits_are_at_least_95_percent_of_a_plain_lru():
    rng = random.Random(3)
    slot = extent_bytes(1000)
    core, session = one_node(capacity=100 * slot)
    oracle, hits, oracle_hits = OrderedDict(), 0, 0
    for number in range(20_000):
        key = b"%d" % min(int(rng.paretovariate(0.6)), 1000)
        if key in oracle:
            oracle_hits += 1
            oracle.move_to_end(key)
        else:
            oracle[key] = True
            if len(oracle) > 100:
                oracle.popitem(last=False)
        reply = core.step(wire.Lookup(session, False, False, [], [key]), 0.0)
        if reply.lease:
            hits += 1
            core.step(wire.Release(session, [reply.lease]), 0.0)
        else:
            assert put(core, session, key, 1000, 0.0, number + 1).outcome == wire.STARTED
    assert oracle_hits > 5000
    assert hits >= 0.95 * oracle_hits


def test_ten_times_the_capacity_goes_in_without_a_failure():
    core, session = one_node(nodes=2)
    rng = random.Random(1)
    total = number = 0
    while total < 10 * 2 * (64 << 10):
        size = rng.choice([1, 700, 5000, 20_000])
        number += 1
        assert put(core, session, b"%d" % number, size, 0.0, number).outcome == wire.STARTED
        total += size
    core.native.check()
    assert core.stats().space.used <= 2 * (64 << 10)


def test_pinned_space_is_refused_with_the_reason():
    core, session = one_node()
    for number in range(1, 9):
        put(core, session, b"%d" % number, 8000, 0.0, number)
    core.step(
        wire.Lookup(session, False, False, [], [b"%d" % number for number in range(1, 9)]), 0.0
    )
    start = wire.put_start(session, wire.PutItem(99, b"more", 8000))
    reply = core.step(start, 0.0)
    assert reply.items[0].outcome == wire.OUT_OF_SPACE
    assert reply.space.evictable == 0
    assert reply.space.pinned == 8 * extent_bytes(8000)
    assert reply.space.largest_free_extent < extent_bytes(8000)


def test_an_object_that_no_node_can_hold_evicts_nobody():
    core, session = one_node()
    put(core, session, b"small", 1000, 0.0, 1)
    assert put(core, session, b"huge", 65 << 10, 0.0, 2).outcome == wire.OUT_OF_SPACE
    assert core.stats().counters.evictions == 0


def test_two_writers_of_one_key_are_told_apart():
    core, session = one_node()
    other = core.step(wire.Hello(0, 6), 0.0, fresh_id=10).session
    item = wire.PutItem(1, b"k", 10)
    first = core.step(wire.put_start(session, item), 0.0).items[0]
    assert first.outcome == wire.STARTED
    assert core.step(wire.put_start(other, item), 0.0).items[0].outcome == wire.BUSY
    end = wire.EndItem(1, b"k", first.generation)
    assert core.step(wire.PutEnd(other, [end], checksums(10)), 0.0).outcomes == [wire.UNKNOWN]
    assert core.step(wire.PutEnd(session, [end], checksums(10)), 0.0).outcomes == [wire.DONE]
    assert core.step(wire.put_start(other, item), 0.0).items[0].outcome == wire.EXISTS


def test_the_checksums_of_an_unknown_put_are_not_given_to_the_next():
    core, session = one_node()
    items = [wire.PutItem(number, b"%d" % number, 10) for number in (1, 2)]
    grants = core.step(wire.put_start(session, *items), 0.0).items
    ends = [
        wire.EndItem(9, b"never", 1, checksums=2),
        wire.EndItem(1, b"1", grants[0].generation, checksums=2),
        wire.EndItem(2, b"2", grants[1].generation),
    ]
    reply = core.step(wire.PutEnd(session, ends, b"aaaabbbbccccddddeeee"), 0.0)
    assert reply.outcomes == [wire.UNKNOWN, wire.END_INVALID, wire.DONE]
    found = core.step(wire.Lookup(session, False, False, [], [b"2"]), 0.0)
    assert found.checksums == b"eeee"
    end = wire.EndItem(1, b"1", grants[0].generation)
    assert core.step(wire.PutEnd(session, [end], b""), 0.0).outcomes == [wire.END_INVALID]
    assert core.step(wire.PutEnd(session, [end], b"ffff"), 0.0).outcomes == [wire.DONE]


@pytest.mark.parametrize(
    ("size", "part", "outcome"),
    [
        (1024, 1, wire.STARTED),
        (1025, 1, wire.INVALID),
        (1 << 20, 1, wire.INVALID),
        (1 << 20, 819, wire.INVALID),
        (1 << 20, 820, wire.STARTED),
        (8 << 20, 4096, wire.STARTED),
    ],
)
def test_an_object_has_1024_chunks_and_one_more_for_each_4_kib(size, part, outcome):
    core, session = one_node(capacity=16 << 20)
    start = wire.put_start(session, wire.PutItem(1, b"k", size, part))
    assert core.step(start, 0.0).items[0].outcome == outcome


def test_an_abort_that_overtakes_its_start_is_obeyed():
    core, session = one_node()
    core.step(wire.PutAbort(session, [wire.AbortItem(1)]), 0.0)
    start = wire.put_start(session, wire.PutItem(1, b"k", 10))
    assert core.step(start, 0.0).items[0].outcome == wire.ABORTED
    assert core.stats().space.used == 0


def test_a_lost_writers_space_waits_for_the_fence_and_its_key_does_not():
    core, session = one_node()
    core.step(wire.put_start(session, wire.PutItem(1, b"k", 1000)), 0.0)
    for tick in range(1, 33):
        core.step(wire.NodeHeartbeat(1), tick / 10)
        core.native.tick(tick / 10)
    assert core.stats().space.quarantined == extent_bytes(1000)
    assert core.step(wire.Hello(0, 5), 3.3, fresh_id=11).is_fenced
    session = core.step(wire.Hello(0, 6), 3.3, fresh_id=12).session
    assert put(core, session, b"k", 1000, 3.3, 1).outcome == wire.STARTED
    assert core.stats().space.used == 2 * extent_bytes(1000)
    assert core.step(wire.NodeHeartbeat(1), 3.3).fence == [5]
    assert core.step(wire.NodeHeartbeat(1, [5]), 3.4).fence == []
    assert core.stats().space.quarantined == 0


def test_a_master_that_stood_still_expels_nobody():
    core, session = one_node()
    core.native.tick(0.1)
    core.native.tick(60.0)
    assert core.step(wire.Heartbeat(session), 60.0).is_known
    assert core.step(wire.NodeHeartbeat(1), 60.0).is_known


def test_a_removed_object_is_invisible_at_once_and_kept_while_it_is_read():
    core, session = one_node()
    put(core, session, b"k", 1000, 0.0, 1)
    lease = core.step(wire.Lookup(session, False, False, [], [b"k"]), 0.0).lease
    assert core.call(wire.REMOVE, wire.Keys([b"k"]), wire.Flags, 0.0).flags == b"\1"
    assert not core.step(wire.Lookup(session, False, False, [], [b"k"]), 0.0).items[0].found
    assert core.stats().space.used == extent_bytes(1000)
    core.step(wire.Release(session, [lease]), 0.0)
    assert core.stats().space.used == 0


def test_the_end_of_a_chain_is_evicted_before_its_beginning():
    core, session = one_node(capacity=10 * extent_bytes(1000))
    chain = [b"c%d" % block for block in range(10)]
    for block, key in enumerate(chain):
        put(core, session, key, 1000, 0.0, block + 1)
    lease = core.step(wire.Lookup(session, True, False, [], chain), 0.0).lease
    core.step(wire.Release(session, [lease]), 0.0)
    for number in range(3):
        put(core, session, b"new%d" % number, 1000, 0.0, 100 + number)
    assert core.call(wire.MATCH_PREFIX, wire.Keys(chain), wire.One, 0.0).value == 7


def test_a_suspected_node_is_not_used_and_comes_back_with_its_objects():
    core, session = one_node()
    put(core, session, b"k", 1000, 0.0, 1)
    core.native.node_disconnected(1, 0.1)
    keys = wire.Keys([b"k"])
    assert core.call(wire.EXISTS_KEYS, keys, wire.Flags, 0.1).flags == b"\0"
    core.step(wire.NodeHeartbeat(1), 0.2)
    assert core.call(wire.EXISTS_KEYS, keys, wire.Flags, 0.2).flags == b"\1"


def test_a_node_that_takes_new_memory_replaces_its_old_self():
    core, session = one_node()
    put(core, session, b"k", 1000, 0.0, 1)
    core.step(wire.register(2, EPOCH, b"n:1", 64 << 10), 0.1)
    stats = core.stats()
    assert [node.node for node in stats.nodes] == [2]
    assert (stats.objects, stats.space.used) == (0, 0)


def test_memory_of_an_earlier_epoch_is_not_taken():
    core, _ = one_node()
    reply = core.step(wire.register(8, EPOCH + 1, b"n:8", 1 << 20), 0.0)
    assert (reply.is_known, reply.epoch) == (False, EPOCH)


def test_garbage_is_refused_and_changes_nothing():
    core, _ = one_node()
    rng = random.Random(5)
    before = core.stats()
    for _ in range(3000):
        body = rng.randbytes(rng.randrange(60))
        try:
            core.native.step(rng.randrange(17, 256), body, now_s=0.0)
        except _native.Error as error:
            assert error.args[0] == _native.Code.kWire
        else:
            raise AssertionError("an unknown type was answered")
    assert core.stats() == before


def test_a_soft_pin_holds_while_a_window_of_others_could_go():
    core, session = one_node(capacity=4 * 128)
    for number, (key, pin) in enumerate([(b"a", 0), (b"soft", 1), (b"b", 0), (b"c", 0)], start=1):
        put(core, session, key, 64, 0.0, number)
        core.step(wire.SetPin(pin, 10**9, [key]), 0.0)
    assert put(core, session, b"larger", 192, 0.0, 9).outcome == wire.STARTED
    keys = wire.Keys([b"a", b"soft", b"b", b"c"])
    assert core.call(wire.EXISTS_KEYS, keys, wire.Flags, 0.0).flags == b"\1\1\0\0"
