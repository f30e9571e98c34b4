"""Room: nothing is evicted in vain, nothing is refused that could be served."""

from __future__ import annotations

import random

import pytest

from mooncake_core.native import _native
from tests.store import wire
from tests.store.core import LEASE_S, Store, extent_bytes


def filled(count=20, *, capacity=None, **options):
    store = Store(capacity=capacity or count * extent_bytes(1000), **options)
    for number in range(count):
        assert store.put(b"k%d" % number) == wire.STARTED
    return store


def test_a_put_between_leased_neighbours_evicts_nobody_in_vain():
    store = filled(20)
    lease = store.lookup(*(b"k%d" % number for number in range(0, 20, 2))).lease
    reply, _ = store.start(b"large", 1500)
    assert reply.items[0].outcome == wire.OUT_OF_SPACE
    assert reply.space.evictable == 10 * extent_bytes(1000)
    assert store.stats().counters.evictions == 0
    store.release(lease)
    assert store.put(b"large", 1500) == wire.STARTED
    assert store.stats().counters.evictions == 2


def test_a_window_is_as_small_as_it_can_be():
    store = filled(20)
    assert store.put(b"large", 3 * extent_bytes(1000) - 64) == wire.STARTED
    assert store.stats().counters.evictions == 3
    assert store.exists(*(b"k%d" % number for number in range(20))) == [0] * 3 + [1] * 17


def test_a_window_begins_with_what_is_free():
    store = filled(20)
    store.remove(b"k11", b"k9")
    store.use(*(b"k%d" % number for number in range(20) if number != 10))
    assert store.put(b"large", 3 * extent_bytes(1000) - 64) == wire.STARTED
    assert store.exists(b"k10") == [0]
    assert store.stats().counters.evictions == 1


def test_one_huge_put_over_tiny_objects_is_served_in_steps():
    count = 9000
    store = Store(capacity=count * extent_bytes(1))
    for first in range(0, count, 1000):
        items = []
        for number in range(first, first + 1000):
            store.put_id += 1
            items.append(wire.PutItem(store.put_id, b"%d" % number, 1))
        reply = store.core.step(wire.put_start(store.session, *items), 0.0)
        ends = [
            wire.EndItem(item.put_id, item.key, grant.generation)
            for item, grant in zip(items, reply.items, strict=True)
        ]
        store.core.step(wire.PutEnd(store.session, ends, b"crc!" * len(ends)), 0.0)
    assert store.stats().objects == count
    reply, item = store.start(b"huge", 8000 * extent_bytes(1))
    asked = 1
    while reply.items[0].outcome == wire.MAKING_ROOM:
        assert store.start(b"huge")[0].items[0].outcome == wire.BUSY
        store.put(b"small%d" % asked, 1)
        reply = store.step(wire.put_start(store.session, item))
        asked += 1
    assert reply.items[0].outcome == wire.STARTED
    assert 4 <= asked <= 10
    assert store.end(item, reply.items[0]) == wire.DONE
    assert store.stats().counters.evictions <= 8100
    assert store.stats().counters.making_room >= 1


def test_room_that_is_no_longer_wanted_is_free_again():
    store = filled(3000, capacity=3000 * extent_bytes(1000))
    reply, item = store.start(b"huge", 2900 * extent_bytes(1000))
    assert reply.items[0].outcome == wire.MAKING_ROOM
    assert store.step(wire.PutAbort(store.session, [wire.AbortItem(item.put_id)])).outcomes == [
        wire.DONE
    ]
    space = store.stats().space
    assert (space.pinned, space.used) == (0, space.evictable)
    reply, _ = store.start(b"huge", 2900 * extent_bytes(1000))
    assert reply.items[0].outcome in (wire.MAKING_ROOM, wire.STARTED)
    store.step(wire.Hello(store.session, 6), fresh_id=10)
    store.settle()
    assert store.stats().space.pinned == 0


def test_pinned_objects_stay_and_soft_ones_go_last():
    store = Store(capacity=10 * extent_bytes(1000))
    store.put(b"hard", pin=wire.HARD_PIN)
    store.put(b"soft", pin=wire.SOFT_PIN, soft_pin_us=1_000_000)
    for number in range(20):
        assert store.put(b"k%d" % number) == wire.STARTED
    assert store.exists(b"hard", b"soft") == [1, 1]
    stats = store.stats()
    assert (stats.hard_pinned, stats.soft_pinned) == (extent_bytes(1000), extent_bytes(1000))
    for number in range(8):
        assert store.put(b"p%d" % number, pin=wire.HARD_PIN) == wire.STARTED
    assert store.put(b"last") == wire.STARTED
    assert store.exists(b"hard", b"soft") == [1, 0]
    store.remove(b"last")
    assert store.put(b"more", pin=wire.HARD_PIN) == wire.STARTED
    reply, _ = store.start(b"none")
    assert reply.items[0].outcome == wire.OUT_OF_SPACE
    assert (reply.space.evictable, reply.space.pinned) == (0, 10 * extent_bytes(1000))


def test_a_soft_pin_ends_by_time_and_pins_can_be_changed():
    store = Store()
    store.put(b"k", pin=wire.SOFT_PIN, soft_pin_us=1_000_000)
    store.pass_time(0.5, nodes=[1])
    assert store.describe(b"k").pin == wire.SOFT_PIN
    assert store.step(wire.SetPin(wire.SOFT_PIN, 1_000_000, [b"k", b"none"])).flags == b"\1\0"
    store.pass_time(0.7, nodes=[1])
    assert store.describe(b"k").pin == wire.SOFT_PIN
    store.pass_time(0.5, nodes=[1])
    assert store.describe(b"k").pin == wire.NO_PIN
    store.step(wire.SetPin(wire.HARD_PIN, 0, [b"k"]))
    assert store.stats().hard_pinned == extent_bytes(1000)
    store.remove(b"k")
    assert store.stats().hard_pinned == 0


def test_a_large_object_is_striped_over_nodes():
    store = Store(nodes=3, capacity=20_000, stripe_bytes=4096)
    reply, item = store.start(b"striped", 40_000, part_bytes=1024)
    grant = reply.items[0]
    assert (grant.outcome, grant.copies, grant.stripe_bytes) == (wire.STARTED, 1, 4096)
    assert len(reply.places()) == 10
    assert {node for node, _ in reply.places()} == {1, 2, 3}
    assert store.end(item, grant) == wire.DONE
    found = store.lookup(b"striped")
    assert found.places() == reply.places()
    assert found.items[0].stripe_bytes == 4096
    store.core.native.node_disconnected(2, store.now_s)
    assert store.exists(b"striped") == [0]
    store.step(wire.NodeHeartbeat(2))
    assert store.exists(b"striped") == [1]
    store.call(wire.NODE_GOODBYE, wire.One(2), None)
    store.settle()
    assert store.exists(b"striped") == [0]
    assert store.stats().space.used > 0, "what is read stays"
    store.release(found.lease)
    assert store.stats().space.used == 0


def test_the_copies_of_a_striped_object_never_share_a_domain():
    store = Store(nodes=4, capacity=40_000, stripe_bytes=4096)
    reply, item = store.start(b"striped", 40_000, part_bytes=1024, replicas=2, is_strict=True)
    assert reply.items[0].copies == 2
    places = reply.places()
    first, second = {n for n, _ in places[:10]}, {n for n, _ in places[10:]}
    assert not first & second
    assert len(first) == len(second) == 2
    assert store.end(item, reply.items[0]) == wire.DONE


def test_strict_puts_have_all_copies_or_none():
    store = Store(nodes=2, capacity=10 * extent_bytes(1000))
    start = store.start(b"a", replicas=3, is_strict=True)[0].items[0]
    assert start.outcome == wire.TOO_FEW_NODES
    assert store.start(b"b", replicas=3)[0].items[0].copies == 2
    store.put(b"large", 8000, preferred=[b"n1"], pin=wire.HARD_PIN)
    start = store.start(b"c", 4000, replicas=2, is_strict=True)[0].items[0]
    assert start.outcome == wire.OUT_OF_SPACE
    assert store.start(b"d", 4000, replicas=2)[0].items[0].copies == 1


def test_an_upsert_replaces_what_is_read_meanwhile_and_a_late_put_is_told():
    store = Store()
    store.put(b"k", 100)
    assert store.start(b"k", 200)[0].items[0].outcome == wire.EXISTS
    reply, upsert = store.start(b"k", 200, is_upsert=True)
    lease = store.lookup(b"k")
    assert lease.items[0].size_bytes == 100
    assert store.end(upsert, reply.items[0]) == wire.DONE
    assert store.lookup(b"k").items[0].size_bytes == 200
    store.remove(b"k")
    plain, late = store.start(b"k", 300)
    reply, upsert = store.start(b"k", 400, is_upsert=True)
    assert store.end(upsert, reply.items[0]) == wire.DONE
    store.remove(b"k")
    assert store.end(late, plain.items[0]) == wire.SUPERSEDED
    assert store.exists(b"k") == [0]
    assert store.stats().counters.superseded == 1


def test_a_key_whose_copies_are_all_on_silent_nodes_can_be_put_again():
    store = Store(nodes=2)
    store.put(b"k", 100, preferred=[b"n1"])
    store.core.native.node_disconnected(1, store.now_s)
    reply, item = store.start(b"k", 200)
    assert reply.items[0].outcome == wire.STARTED
    store.step(wire.NodeHeartbeat(1))
    assert store.exists(b"k") == [1]
    assert store.end(item, reply.items[0]) == wire.SUPERSEDED
    store.core.native.node_disconnected(1, store.now_s)
    assert store.put(b"k", 200) == wire.STARTED
    store.step(wire.NodeHeartbeat(1))
    assert store.describe(b"k").size_bytes == 200


def test_a_policy_may_not_want_what_is_put_once():
    store = Store(admission="second-put")
    assert store.put(b"k") == wire.NOT_ADMITTED
    assert store.put(b"k") == wire.STARTED
    assert store.stats().counters.not_admitted == 1


@pytest.mark.parametrize(
    "options", [{"eviction": "none"}, {"admission": "no"}, {"placement": "here"}]
)
def test_a_name_that_is_not_known_is_refused_with_those_that_are(options):
    with pytest.raises(_native.Error) as caught:
        Store(**options)
    assert "there are: " in caught.value.args[1]


def test_a_corrupt_copy_goes_alone_and_stays_while_it_is_read():
    store = Store(nodes=2, repairs=False)
    store.put(b"k", replicas=2)
    lease = store.lookup(b"k").lease
    corrupt = wire.Corrupt(b"k", store.describe(b"k").generation, 1)
    store.step(corrupt)
    store.step(corrupt)
    assert [node for node, _ in store.lookup(b"k").places()] == [2]
    assert store.stats().counters.corrupt == 1
    assert store.stats().space.used == 2 * extent_bytes(1000)
    for number in range(1, lease + 5):
        store.release(number)
    assert store.stats().space.used == extent_bytes(1000)
    store.step(wire.Corrupt(b"k", corrupt.generation, 2))
    assert store.exists(b"k") == [0]


def test_what_a_silent_client_has_pinned_stays_until_it_is_fenced():
    store = Store(nodes=2)
    store.put(b"k", replicas=2)
    assert store.lookup(b"k", is_pin=True).lease
    store.pass_time(2 * 5.0, nodes=[1, 2])
    assert store.describe(b"k").leases == 1
    store.pass_time(4.0, alive=False, nodes=[1, 2])
    assert store.stats().clients == 0
    store.remove(b"k")
    assert store.stats().space.used == 2 * extent_bytes(1000)
    assert store.step(wire.Hello(0, 5), fresh_id=20).is_fenced
    assert store.step(wire.NodeHeartbeat(1, [5])).fence == []
    assert store.stats().space.used == 2 * extent_bytes(1000)
    assert store.step(wire.NodeHeartbeat(2)).fence == [5]
    store.step(wire.NodeHeartbeat(2, [5]))
    assert store.stats().space.used == 0
    assert store.stats().leases == 0


def test_a_listing_has_what_is_there_from_beginning_to_end_once():
    rng = random.Random(1)
    store = Store(capacity=4 << 20)
    stable = {b"stay/%d" % number for number in range(300)}
    churn = []
    for key in stable:
        store.put(key, 10)
    seen, cursor, number = [], 0, 0
    while True:
        page = store.core.step(wire.List(cursor, 7, b"stay/"), 0.0)
        assert len(page.objects) <= 7
        seen += [one.key for one in page.objects]
        for _ in range(20):
            number += 1
            churn.append(b"go/%d" % number)
            store.core.step(
                wire.put_start(store.session, wire.PutItem(10_000 + number, churn[-1], 10)), 0.0
            )
            if rng.random() < 0.5:
                store.step(wire.PutAbort(store.session, [wire.AbortItem(10_000 + number)]))
        cursor = page.cursor
        if cursor == 0:
            break
    assert len(seen) == len(set(seen))
    assert set(seen) == stable


def test_a_listing_that_finds_nothing_still_moves_on():
    store = Store(capacity=4 << 20)
    for number in range(5000):
        store.put_id += 1
        item = wire.PutItem(store.put_id, b"%d" % number, 1)
        store.core.step(wire.put_start(store.session, item), 0.0)
    store.put(b"x-last", 1)
    page = store.step(wire.List(0, 10, b"x-"))
    assert page.objects == [] and page.cursor > 0
    assert store.list(b"x-") == [b"x-last"]


def test_a_description_says_what_is_there():
    store = Store(nodes=2)
    store.put(b"p")
    store.put(b"k", 1000, parent=b"p", depth=1, replicas=2, pin=wire.HARD_PIN, group=b"g")
    answer = store.step(wire.Describe([b"k", b"none"]))
    there, none = answer.objects
    assert (there.is_there, there.size_bytes, there.depth, there.pin) == (True, 1000, 1, 2)
    assert sorted(answer.nodes[at] for at in there.copies) == [b"n1", b"n2"]
    assert (none.key, none.is_there) == (b"none", False)


def test_a_softly_pinned_neighbour_stays_where_a_later_window_holds_none():
    store = Store(capacity=8 * extent_bytes(1000))
    for key in (b"old", b"soft", b"held", b"young", b"next"):
        store.put(key, pin=wire.SOFT_PIN if key == b"soft" else wire.NO_PIN, soft_pin_us=10**9)
    for number in range(3):
        store.put(b"hard%d" % number, pin=wire.HARD_PIN)
    store.lookup(b"held")
    assert store.put(b"large", 2 * extent_bytes(1000) - 64) == wire.STARTED
    assert store.exists(b"old", b"soft", b"young", b"next") == [1, 1, 0, 0]
    store.lookup(b"large")
    assert store.put(b"more", 2 * extent_bytes(1000) - 64) == wire.STARTED
    assert store.exists(b"old", b"soft") == [0, 0], "nothing else was left"


def test_what_is_pinned_softly_stays_while_another_node_has_room():
    store = Store(nodes=2, capacity=4 * extent_bytes(1000))
    soft = {"pin": wire.SOFT_PIN, "soft_pin_us": 10**9, "preferred": [b"n1"]}
    for number in range(4):
        store.put(b"soft%d" % number, **soft)
        store.put(b"k%d" % number, preferred=[b"n2"])
    assert store.put(b"new", preferred=[b"n1"]) == wire.STARTED
    assert store.exists(*(b"soft%d" % number for number in range(4))) == [1] * 4
    assert store.exists(b"k0", b"k1") == [0, 1]


def test_a_strict_put_that_is_refused_evicts_nobody():
    store = Store(nodes=2, capacity=4 * extent_bytes(1000))
    for number in range(4):
        store.put(b"k%d" % number, preferred=[b"n1"])
        store.put(b"h%d" % number, preferred=[b"n2"], pin=wire.HARD_PIN)
    store.remove(b"h1", b"h3")
    strict = {"replicas": 2, "is_strict": True}
    assert store.put(b"large", 2000, **strict) == wire.OUT_OF_SPACE
    assert store.stats().counters.evictions == 0
    store.remove(b"h0")
    assert store.put(b"large", 2000, **strict) == wire.STARTED
    assert store.stats().counters.evictions == 2


def test_a_striped_put_that_is_refused_evicts_nobody():
    store = filled(20, capacity=21 * extent_bytes(1000), stripe_bytes=3000)
    striped = {"part_bytes": 1000}
    assert store.put(b"all", 23_000, **striped) == wire.OUT_OF_SPACE
    lease = store.lookup(*(b"k%d" % number for number in range(2, 20, 4))).lease
    assert store.put(b"most", 15_000, **striped) == wire.OUT_OF_SPACE
    assert store.stats().counters.evictions == 0
    store.release(lease)
    assert store.put(b"most", 18_000, **striped) == wire.STARTED
    assert store.stats().counters.evictions <= 20


def test_stripes_share_the_window_of_one_large_object():
    store = Store(capacity=10_000 // 64 * 64, stripe_bytes=1000)
    assert store.put(b"large", 9000, part_bytes=9000) == wire.STARTED
    assert store.put(b"striped", 8000, part_bytes=1000) == wire.STARTED
    assert store.exists(b"large", b"striped") == [0, 1]


@pytest.mark.parametrize("seed", range(40))
def test_a_put_of_many_extents_is_served_or_evicts_nobody(seed):
    rng = random.Random(seed)
    store = Store(nodes=rng.randint(1, 4), capacity=12_800, stripe_bytes=1024)
    for number in range(60):
        pin = rng.choice([wire.NO_PIN] * 3 + [wire.HARD_PIN, wire.SOFT_PIN])
        size = rng.randint(100, 900)
        store.put(b"k%d" % number, size, pin=pin, soft_pin_us=10**9)
    for number in range(20):
        before, there = store.stats().counters.evictions, store.list()
        size, replicas = rng.randint(1000, 20_000), rng.randint(1, 2)
        options = {"replicas": replicas, "is_strict": rng.random() < 0.5, "part_bytes": 512}
        outcome = store.put(b"large%d" % number, size, **options)
        assert outcome != wire.MAKING_ROOM
        if outcome != wire.STARTED:
            assert (store.stats().counters.evictions, store.list()) == (before, there)


def test_room_whose_put_never_asks_again_is_given_back_in_time():
    store = filled(3000, capacity=3000 * extent_bytes(1000))
    reply, item = store.start(b"huge", 2900 * extent_bytes(1000))
    assert reply.items[0].outcome == wire.MAKING_ROOM
    assert store.stats().space.pinned > 0
    store.pass_time(LEASE_S + 0.5, nodes=[1])
    assert store.stats().space.pinned == 0
    while reply.items[0].outcome == wire.MAKING_ROOM:
        reply = store.step(wire.put_start(store.session, item))
    assert reply.items[0].outcome == wire.STARTED
    assert store.end(item, reply.items[0]) == wire.DONE
