"""Chains go from their end, groups live and die together."""

from __future__ import annotations

import pytest

from tests.store import wire
from tests.store.core import Store, extent_bytes


def chain_of(store, name, count, *, size=1000):
    keys = [b"%s%d" % (name, block) for block in range(count)]
    for block, key in enumerate(keys):
        parent = keys[block - 1] if block else b""
        assert store.put(key, size, parent=parent, depth=block) == wire.STARTED
    return keys


def kept_of(store, keys):
    there = store.exists(*keys)
    kept = sum(there)
    assert there == [1] * kept + [0] * (len(keys) - kept), "what is kept is not a prefix"
    return kept


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("eviction", ["lru", "fifo", "lfu"])
def test_what_is_left_of_a_chain_is_a_prefix(nodes, eviction):
    store = Store(nodes=nodes, capacity=100 // nodes * extent_bytes(1000), eviction=eviction)
    keys = chain_of(store, b"c", 100)
    for number in range(30):
        assert store.put(b"new%d" % number) == wire.STARTED
        kept_of(store, keys)
    assert kept_of(store, keys) >= 60


def test_a_chain_is_cut_from_its_end_for_objects_of_other_sizes():
    store = Store(capacity=100 * extent_bytes(1000))
    keys = chain_of(store, b"c", 100)
    assert store.put(b"large", 10_000) == wire.STARTED
    assert 85 <= kept_of(store, keys) <= 90


def test_the_colder_of_two_chains_goes_first_and_whole():
    store = Store(capacity=20 * extent_bytes(1000))
    cold, warm = chain_of(store, b"c", 10), chain_of(store, b"w", 10)
    store.use(*warm)
    for number in range(5):
        store.put(b"new%d" % number)
    assert (kept_of(store, cold), kept_of(store, warm)) == (5, 10)


def test_a_beginning_that_others_still_use_outlives_the_end_that_nobody_does():
    store = Store(capacity=12 * extent_bytes(1000))
    keys = chain_of(store, b"c", 6)
    others = [b"o%d" % number for number in range(6)]
    for key in others:
        store.put(key)
    store.use(*keys[:3])
    for number in range(5):
        store.put(b"new%d" % number)
    assert kept_of(store, keys) == 3


def test_a_node_that_has_only_the_middle_of_a_chain_loses_what_stands_behind_it_first():
    store = Store(nodes=2, capacity=10 * extent_bytes(1000))
    keys = [b"c%d" % block for block in range(20)]
    for block, key in enumerate(keys):
        parent = keys[block - 1] if block else b""
        name = b"n1" if block < 10 else b"n2"
        store.put(key, parent=parent, depth=block, preferred=[name])
    assert store.put(b"new", preferred=[b"n1"]) == wire.STARTED
    kept_of(store, keys)


def test_a_descendant_that_is_read_is_cut_off_and_stays():
    store = Store(capacity=10 * extent_bytes(1000))
    keys = chain_of(store, b"c", 10)
    lease = store.lookup(keys[9]).lease
    for number in range(9):
        assert store.put(b"new%d" % number) == wire.STARTED
    assert store.exists(*keys) == [0] * 9 + [1]
    store.release(lease)
    assert store.put(b"last") == wire.STARTED


def test_a_parent_that_is_removed_leaves_its_children_and_nothing_of_itself():
    store = Store()
    keys = chain_of(store, b"c", 3)
    fork = [b"f%d" % number for number in range(5)]
    for key in fork:
        store.put(key, parent=keys[0], depth=1)
    assert store.remove(keys[0]) == [1]
    assert store.exists(*keys) == [0, 1, 1]
    assert store.remove(*keys[1:], *fork) == [1] * 7
    assert (store.stats().objects, store.stats().space.used) == (0, 0)


def test_children_follow_the_new_version_of_their_parent():
    store = Store(capacity=4 * extent_bytes(1000))
    keys = chain_of(store, b"c", 3)
    assert store.put(keys[0], is_upsert=True) == wire.STARTED
    for number in range(3):
        store.put(b"new%d" % number)
    assert store.exists(*keys) == [1, 0, 0]


def test_a_group_is_readable_once_all_its_members_are_there():
    store = Store()
    for rank in range(4):
        assert store.exists(*(b"r%d" % other for other in range(4))) == [0, 0, 0, 0]
        store.put(b"r%d" % rank, group=b"block", group_size=4)
    assert store.exists(*(b"r%d" % rank for rank in range(4))) == [1, 1, 1, 1]
    assert store.stats().groups == 1
    assert store.describe(b"r2").group == b"block"


@pytest.mark.parametrize("end", ["remove", "evict", "corrupt"])
def test_a_group_goes_with_one_of_its_members_and_its_name_is_free_again(end):
    store = Store(capacity=5 * extent_bytes(1000))
    ranks = [b"r%d" % rank for rank in range(4)]
    for key in ranks:
        store.put(key, group=b"block", group_size=4)
    if end == "remove":
        store.remove(ranks[1])
    elif end == "corrupt":
        store.step(wire.Corrupt(ranks[1], store.describe(ranks[1]).generation))
    else:
        store.put(b"one")
        store.put(b"two")
    assert store.exists(*ranks) == [0, 0, 0, 0]
    store.settle()
    assert store.stats().groups == 0
    assert store.stats().objects == (2 if end == "evict" else 0)
    for key in ranks:
        assert store.put(key, group=b"block", group_size=4) == wire.STARTED
    assert store.exists(*ranks) == [1, 1, 1, 1] or end == "evict"


def test_a_member_that_is_being_written_dies_with_its_group():
    store = Store()
    store.put(b"r0", group=b"block")
    reply, item = store.start(b"r1", group=b"block")
    store.remove(b"r0")
    assert store.end(item, reply.items[0]) == wire.GROUP_GONE
    assert (store.stats().objects, store.stats().space.used) == (0, 0)


def test_a_new_version_of_a_member_does_not_end_its_group():
    store = Store()
    for rank in range(2):
        store.put(b"r%d" % rank, group=b"block", group_size=2)
    assert store.put(b"r0", 2000, is_upsert=True, group=b"block", group_size=2) == wire.STARTED
    assert store.exists(b"r0", b"r1") == [1, 1]
    assert store.put(b"r0", 2000, is_upsert=True) == wire.STARTED
    assert store.exists(b"r0", b"r1") == [1, 0]


def pin(store, pin, key):
    store.step(wire.SetPin(pin, 10**9, [key]))


@pytest.mark.parametrize("when", ["with the put", "before the others", "later"])
def test_a_hard_pin_of_a_member_keeps_all_of_its_group(when):
    """A member that was evicted would take the pinned one with it."""
    store = Store(capacity=10 * extent_bytes(1000))
    for number in range(6):
        is_pinned = when == "with the put" and number == 5
        store.put(b"r%d" % number, group=b"g", pin=wire.HARD_PIN if is_pinned else wire.NO_PIN)
        if when == "before the others" and number == 0:
            pin(store, wire.HARD_PIN, b"r0")
    if when == "later":
        pin(store, wire.HARD_PIN, b"r3")
    store.settle()
    for number in range(20):
        assert store.put(b"p%d" % number) == wire.STARTED
    assert store.exists(*(b"r%d" % number for number in range(6))) == [1] * 6
    reply, _ = store.start(b"large", 5000)
    assert reply.items[0].outcome == wire.OUT_OF_SPACE
    assert reply.space.evictable == 4 * extent_bytes(1000)
    for number in range(6):
        pin(store, wire.NO_PIN, b"r%d" % number)
    store.settle()
    assert store.put(b"large", 5000) == wire.STARTED
    store.settle()
    assert store.exists(b"r0", b"r5", b"large") == [0, 0, 1]


def test_a_group_with_a_soft_pin_goes_when_nothing_else_is_left():
    store = Store(capacity=10 * extent_bytes(1000))
    for number in range(5):
        pin = wire.SOFT_PIN if number == 2 else wire.NO_PIN
        store.put(b"r%d" % number, group=b"g", pin=pin, soft_pin_us=10**12)
    for number in range(5):
        store.put(b"k%d" % number)
    store.settle()
    assert store.put(b"large", 5000, pin=wire.HARD_PIN) == wire.STARTED
    assert store.exists(b"k0", b"k4", b"r0", b"r4", b"large") == [0, 0, 1, 1, 1]
    assert store.put(b"more") == wire.STARTED
    store.settle()
    assert store.exists(b"r0", b"r4", b"large", b"more") == [0, 0, 1, 1]


def test_a_pin_in_a_large_group_holds_at_once_and_settles_in_slices():
    count = 3000
    store = Store(capacity=count * extent_bytes(100))
    for number in range(count):
        store.put(b"%d" % number, 100, group=b"all")
    pin(store, wire.HARD_PIN, b"7")
    reply, _ = store.start(b"new", 100)
    assert reply.items[0].outcome == wire.MAKING_ROOM
    store.settle()
    reply, _ = store.start(b"other", 100)
    assert reply.items[0].outcome == wire.OUT_OF_SPACE
    assert (store.stats().objects, store.stats().space.evictable) == (count, 0)
    pin(store, wire.HARD_PIN, b"7")
    assert store.settle() == 0, "the same pin again costs nothing"


def test_a_large_group_goes_in_slices():
    store = Store(capacity=64 << 20)
    for first in range(0, 5000, 500):
        items = []
        for number in range(first, first + 500):
            store.put_id += 1
            items.append(wire.PutItem(store.put_id, b"%d" % number, 100, group=b"all"))
        reply = store.step(wire.put_start(store.session, *items))
        ends = [
            wire.EndItem(item.put_id, item.key, grant.generation)
            for item, grant in zip(items, reply.items, strict=True)
        ]
        store.step(wire.PutEnd(store.session, ends, b"crc!" * len(ends)))
    store.remove(b"17")
    assert store.exists(b"17", b"18", b"4999") == [0, 0, 0]
    assert store.list() == []
    assert store.put(b"18") == wire.STARTED
    assert store.settle() >= 2
    assert (store.stats().objects, store.stats().groups) == (1, 0)
