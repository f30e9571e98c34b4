"""A whole store on one seed: the real master core, clients that crash, stall, repeat and reorder,
nodes that come and go, against a dumb twin that knows who may write where.

Replay one seed with: python -m tests.store.test_master_sim SEED
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import OrderedDict
from dataclasses import dataclass, field

import pytest

from mooncake_core.native import _native
from tests.store import wire

TTL_S, LEASE_S = 3.0, 5.0
HEADER, UNIT, CHUNK = 64, 64, 256 * 1024
EPOCH = 77


def extent_bytes(size):
    return -(-(HEADER + size) // UNIT) * UNIT


def checksums(size):
    return b"crc!" * -(-size // CHUNK)


@dataclass
class Grant:
    put_id: int
    key: bytes
    size: int
    generation: int
    peer_id: int
    places: list  # (node, offset)


@dataclass
class Client:
    peer_id: int
    session: int = 0
    crashed: bool = False
    stalled_until: float = 0.0
    beat_at: float = 0.0
    open: dict = field(default_factory=dict)  # put id -> Grant
    leases: dict = field(default_factory=dict)  # lease -> [(node, offset, size, key, generation)]


@dataclass
class Node:
    node: int
    capacity: int
    endpoint: bytes
    alive: bool = True
    beat_at: float = 0.0
    barred: set = field(default_factory=set)
    acks: list = field(default_factory=list)


class World:
    """Drives the core and holds what must be true of it."""

    def __init__(self, seed, nodes=3, clients=5, capacity=200 << 10):
        self.rng = random.Random(seed)
        self.core = wire.Core(_native, epoch=EPOCH, client_ttl_s=TTL_S, lease_s=LEASE_S)
        self.now, self.ids = 100.0, 1000
        self.capacity = capacity
        self.nodes = {}
        self.clients = []
        self.committed = {}  # key -> (generation, size)
        self.extents = {}  # (node, offset) -> (peer that may write or None, size, generation)
        self.late = []  # messages of the past, to be said again
        for _ in range(nodes):
            self.add_node()
        for _ in range(clients):
            self.add_client()

    def fresh(self):
        self.ids += 1
        return self.ids

    def step(self, message):
        answer = self.core.step(message, self.now, fresh_id=self.fresh())
        if self.rng.random() < 0.05:
            self.late.append(message)
        return answer

    # --- members

    def add_node(self):
        node = Node(self.fresh(), self.capacity, b"host:%d" % self.fresh())
        reply = self.step(wire.register(node.node, EPOCH, node.endpoint, node.capacity))
        assert reply.is_known
        node.beat_at = self.now
        self.nodes[node.node] = node

    def add_client(self):
        client = Client(self.fresh())
        self.clients.append(client)
        self.hello(client)

    def hello(self, client):
        reply = self.step(wire.Hello(client.session, client.peer_id))
        if reply.is_fenced:
            client.peer_id = self.fresh()
            reply = self.step(wire.Hello(client.session, client.peer_id))
        assert not reply.is_fenced
        client.session, client.beat_at = reply.session, self.now
        client.open.clear()
        client.leases.clear()

    def beats(self):
        for client in self.clients:
            if client.crashed or self.now < client.stalled_until:
                continue
            if self.now - client.beat_at >= TTL_S / 4:
                client.beat_at = self.now
                reply = self.step(wire.Heartbeat(client.session, list(client.leases)))
                for lease in reply.ended:
                    client.leases.pop(lease)
                if not reply.is_known:
                    self.hello(client)
        for node in list(self.nodes.values()):
            if node.alive and self.now - node.beat_at >= TTL_S / 4:
                self.node_beat(node)

    def node_beat(self, node):
        node.beat_at = self.now
        reply = self.step(wire.NodeHeartbeat(node.node, list(node.acks)))
        for peer in node.acks:
            self.forget_writer(node.node, peer)
        node.acks = []
        assert reply.is_known
        for peer in reply.fence:
            node.barred.add(peer)
            if self.rng.random() < 0.7:  # else the writer is stopped: its mapping is still there
                node.acks.append(peer)

    # --- the twin

    def forget_writer(self, node, peer):
        for place, (writer, _, _) in list(self.extents.items()):
            if place[0] == node and writer == peer:
                del self.extents[place]

    def claim(self, client, grant):
        """A grant must not touch memory that someone else may still write or read."""
        for node, offset in grant.places:
            assert node in self.nodes
            assert client.peer_id not in self.nodes[node].barred or True
            end = offset + extent_bytes(grant.size)
            assert end <= self.capacity
            for (other, start), (writer, size, _) in list(self.extents.items()):
                if other != node or end <= start or start + extent_bytes(size) <= offset:
                    continue
                assert writer is None, f"granted what {writer} may still write"
                del self.extents[(other, start)]  # evicted
            for reader in self.clients:
                for objects in reader.leases.values():
                    for n, o, size, *_ in objects:
                        held = n == node and offset < o + extent_bytes(size) and o < end
                        assert not held or reader.crashed or self.now < reader.stalled_until
            self.extents[(node, offset)] = (client.peer_id, grant.size, grant.generation)

    def settle(self, grant, committed):
        for place in grant.places:
            if place in self.extents and self.extents[place][2] == grant.generation:
                if committed:
                    self.extents[place] = (None, grant.size, grant.generation)
                else:
                    del self.extents[place]

    # --- what happens

    def put_start(self, client):
        size = self.rng.choice([0, 1, 100, 4096, 60_000, int(2 ** self.rng.uniform(0, 18))])
        key = b"k%d" % self.rng.randrange(60)
        item = wire.PutItem(self.fresh(), key, size)
        start = wire.put_start(client.session, item, replicas=self.rng.choice([1, 1, 2]))
        reply = self.step(start)
        if not reply.is_known:
            return self.hello(client)
        granted = reply.items[0]
        if granted.outcome == wire.OUT_OF_SPACE:
            self.assert_really_full(size, reply.space)
        if granted.outcome != wire.STARTED:
            return None
        places = reply.places()
        assert len({node for node, _ in places}) == len(places)
        grant = Grant(item.put_id, key, size, granted.generation, reply.peer_id, places)
        assert reply.peer_id == client.peer_id
        self.claim(client, grant)
        client.open[grant.put_id] = grant
        again = self.step(start)
        assert again.items[0] == granted

    def assert_really_full(self, size, space):
        """Nothing evictable is left on any node that could make room."""
        stats = self.core.stats(self.now)
        online = [node for node in stats.nodes if node.state == 0]
        if not online or extent_bytes(size) > self.capacity:
            return
        assert space.evictable == 0 or space.largest_free_extent < extent_bytes(size)
        assert space.capacity - space.pinned - space.quarantined < len(online) * self.capacity

    def put_end(self, client):
        if not client.open:
            return
        grant = client.open.pop(self.rng.choice(list(client.open)))
        dirty = [n for n, _ in grant.places if self.rng.random() < 0.03]
        lost = [at for at, (node, _) in enumerate(grant.places) if node in dirty]
        item = wire.EndItem(grant.put_id, grant.key, grant.generation, lost, dirty)
        end = wire.PutEnd(client.session, [item], checksums(grant.size))
        reply = self.step(end)
        if not reply.is_known:
            return self.hello(client)
        if reply.outcomes == [wire.DONE]:
            self.committed[grant.key] = (grant.generation, grant.size)
            self.step(end)
        kept = [place for place in grant.places if place[0] not in dirty]
        self.settle(
            Grant(0, grant.key, grant.size, grant.generation, 0, kept),
            reply.outcomes == [wire.DONE],
        )
        if dirty:
            self.hello_after_rotation(client)

    def hello_after_rotation(self, client):
        client.peer_id = self.fresh()
        self.hello(client)

    def put_abort(self, client):
        if not client.open:
            return
        grant = client.open.pop(self.rng.choice(list(client.open)))
        reply = self.step(wire.PutAbort(client.session, [wire.AbortItem(grant.put_id)]))
        if not reply.is_known:
            return self.hello(client)
        assert reply.outcomes == [wire.DONE]
        self.settle(grant, committed=False)

    def lookup(self, client):
        keys = [b"k%d" % self.rng.randrange(60) for _ in range(self.rng.randint(1, 4))]
        reply = self.step(wire.Lookup(client.session, self.rng.random() < 0.5, False, [], keys))
        if not reply.is_known:
            return self.hello(client)
        held, places = [], iter(reply.places())
        sums = b"".join(checksums(item.size_bytes) for item in reply.items)
        assert reply.checksums == sums
        for key, item in zip(keys, reply.items, strict=True):
            if item.found:
                assert self.committed[key] == (item.generation, item.size_bytes)
                for node, offset in itertools.islice(places, item.copies):
                    writer, _, generation = self.extents[(node, offset)]
                    assert (writer, generation) == (None, item.generation)
                    held.append((node, offset, item.size_bytes))
        if reply.lease:
            client.leases[reply.lease] = held

    def release(self, client):
        if client.leases:
            lease = self.rng.choice(list(client.leases))
            del client.leases[lease]
            self.step(wire.Release(client.session, [lease]))

    def remove(self, _):
        key = b"k%d" % self.rng.randrange(60)
        self.core.call(wire.REMOVE, wire.Keys([key]), wire.Flags, self.now)
        exists = self.core.call(wire.EXISTS_KEYS, wire.Keys([key]), wire.Flags, self.now)
        assert exists.flags == b"\0"

    def lose_node(self):
        if len(self.nodes) < 2:
            return
        node = self.rng.choice(list(self.nodes.values()))
        node.alive = False
        if self.rng.random() < 0.5:
            self.core.native.node_disconnected(node.node, self.now)
        self.pass_time(2 * TTL_S + 1)
        del self.nodes[node.node]
        for place in [place for place in self.extents if place[0] == node.node]:
            del self.extents[place]
        for client in self.clients:
            for lease, held in client.leases.items():
                client.leases[lease] = [each for each in held if each[0] != node.node]
        self.add_node()
        reply = self.step(wire.register(node.node, EPOCH, node.endpoint, node.capacity))
        assert not reply.is_known, "a lost node's memory must not come back"

    def say_again(self):
        if not self.late:
            return
        message = self.late.pop(self.rng.randrange(len(self.late)))
        if isinstance(message, wire.Hello | wire.NodeRegister | wire.PutStart | wire.Lookup):
            return  # these would take something that the twin does not know of
        if isinstance(message, wire.PutAbort | wire.PutEnd | wire.Release):
            self.core.step(message, self.now)

    def pass_time(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            self.beats()
            self.core.native.tick(self.now)

    def act(self):
        client = self.rng.choice(self.clients)
        roll = self.rng.random()
        if roll < 0.004:
            self.lose_node()
        elif roll < 0.008:
            client.crashed = True
            self.clients.remove(client)
            self.add_client()
        elif roll < 0.016:
            client.stalled_until = self.now + self.rng.uniform(0, 3 * TTL_S)
        elif roll < 0.06:
            self.pass_time(self.rng.uniform(0, 0.5))
        elif roll < 0.08:
            self.say_again()
        elif self.now >= client.stalled_until:
            actions = [self.put_start] * 4 + [self.put_end] * 4 + [self.lookup] * 4
            actions += [self.put_abort, self.release, self.release, self.release, self.remove]
            self.rng.choice(actions)(client)

    def run(self, steps):
        for _ in range(steps):
            self.act()
            self.core.native.check()
        self.settle_down()

    def settle_down(self):
        """Everyone leaves: nothing is leased, written or quarantined, whatever went before."""
        self.clients.clear()
        self.rng.random = lambda: 0.5  # every fence completes
        self.pass_time(4 * TTL_S)
        stats = self.core.stats(self.now)
        assert (stats.clients, stats.leases, stats.writing) == (0, 0, 0)
        assert (stats.space.pinned, stats.space.quarantined) == (0, 0)
        assert stats.space.used == stats.space.evictable


@pytest.mark.parametrize("seed", range(12))
def test_a_store_keeps_its_promises_on_every_seed(seed):
    try:
        World(seed).run(1000)
    except BaseException:
        print(f"replay: python -m tests.store.test_master_sim {seed}", file=sys.stderr)
        raise


def put(core, session, key, size, now_s, put_id, replicas=1):
    start = wire.put_start(session, wire.PutItem(put_id, key, size), replicas=replicas)
    granted = core.step(start, now_s).items[0]
    if granted.outcome == wire.STARTED:
        end = wire.PutEnd(session, [wire.EndItem(put_id, key, granted.generation)], checksums(size))
        assert core.step(end, now_s).outcomes == [wire.DONE]
    return granted


def one_node(capacity=64 << 10, nodes=1):
    core = wire.Core(_native, epoch=EPOCH, client_ttl_s=TTL_S, lease_s=LEASE_S)
    for node in range(1, nodes + 1):
        core.step(wire.register(node, EPOCH, b"n:%d" % node, capacity), 0.0)
    session = core.step(wire.Hello(0, 5), 0.0, fresh_id=9).session
    return core, session


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


if __name__ == "__main__":
    World(int(sys.argv[1])).run(1000)
