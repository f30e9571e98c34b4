"""A master core with nodes whose memory is a dict, for tests of what happens in the background."""

from __future__ import annotations

import itertools

from mooncake_core.native import _native
from tests.store import wire

EPOCH, TTL_S, LEASE_S = 7, 3.0, 5.0
CHUNK, HEADER = 256 * 1024, 64


class Node:
    """A node that does as it is told, if it is asked to."""

    def __init__(self, number, name, capacity):
        self.number, self.name, self.capacity = number, name, capacity
        self.memory = {}  # offset -> what lies there
        self.orders = {}  # id -> order, not carried out yet
        self.finished = {}  # id -> result, until the master has heard of it

    def obey(self, orders):
        asked = {order.order: order for order in orders}
        self.finished = {id_: each for id_, each in self.finished.items() if id_ in asked}
        self.orders = {id_: each for id_, each in asked.items() if id_ not in self.finished}


class Site:
    """One client, and nodes of distinct domains."""

    def __init__(self, *names, capacity=1 << 20, **options):
        options.setdefault("stripe_bytes", 64 << 20)
        self.core = wire.Core(_native, epoch=EPOCH, client_ttl_s=TTL_S, lease_s=LEASE_S, **options)
        self.now, self.ids = 100.0, itertools.count(1000)
        self.nodes = {}
        for name in names:
            self.add_node(name, capacity)
        self.session = self.step(wire.Hello(0, 1)).session

    def step(self, message):
        answer = self.core.step(message, self.now, fresh_id=next(self.ids))
        self.core.native.check()
        return answer

    def stats(self):
        return self.core.stats(self.now)

    # --- nodes

    def add_node(self, name, capacity=1 << 20, domain=None):
        node = Node(next(self.ids), name, capacity)
        raw = name.encode()
        hello = wire.register(
            node.number, EPOCH, raw + b":1", capacity, name=raw, domain=(domain or name).encode()
        )
        assert self.step(hello).is_known
        self.nodes[name] = node
        return node

    def by_number(self, number):
        return next((node for node in self.nodes.values() if node.number == number), None)

    def beat(self, name):
        """Let a node say what it has done, and hear what there is to do."""
        node = self.nodes[name]
        reply = self.step(wire.NodeHeartbeat(node.number, [], list(node.finished.values())))
        assert reply.is_known
        node.obey(reply.orders)
        return node

    def carry_out(self, node, order, is_good=True):
        """Fetch a stripe as a node does; the result goes with its next heartbeat."""
        corrupt, is_done = [], False
        for number, offset in wire.sources(order):
            source = self.by_number(number)
            what = source.memory.get(offset) if source and is_good else None
            if what is not None and what[1] == order.generation and not what[3]:
                node.memory[order.offset] = what
                is_done = True
                break
            if what is not None:
                corrupt.append(number)
        node.orders.pop(order.order, None)
        node.finished[order.order] = wire.CopyResult(order.order, is_done, corrupt)

    def lose(self, name):
        """End a node; the master learns it at once."""
        node = self.nodes.pop(name)
        self.core.call(wire.NODE_GOODBYE, wire.One(node.number), None, self.now)
        self.core.native.check()
        return node

    def used(self, name):
        number = self.nodes[name].number
        return next(node.used for node in self.stats().nodes if node.node == number)

    def state(self, name):
        number = self.nodes[name].number
        return next(node.state for node in self.stats().nodes if node.node == number)

    # --- time

    def work(self):
        """Let the master do what waits."""
        for _ in range(1000):
            if not self.core.native.has_background:
                return
            self.core.native.run_slice(self.now)
            self.core.native.check()
        raise AssertionError("the master's background work never ends")

    def tick(self, seconds=0.1):
        self.now += seconds
        self.step(wire.Heartbeat(self.session))
        self.core.native.tick(self.now)
        self.work()

    def settle(self, seconds=1.0):
        """Let time pass, and all nodes do what they are told."""
        end = self.now + seconds
        while self.now < end:
            self.tick()
            for name in list(self.nodes):
                node = self.beat(name)
                for order in list(node.orders.values()):
                    self.carry_out(node, order)

    # --- objects

    def put(self, key, size=1000, part_bytes=0, **options):
        item = wire.PutItem(next(self.ids), key, size, part_bytes)
        reply = self.step(wire.put_start(self.session, item, **options))
        [grant] = reply.items
        if grant.outcome != wire.STARTED:
            return grant
        stripes = len(reply.places()) // grant.copies
        for at, (number, offset) in enumerate(reply.places()):
            what = (key, grant.generation, at % stripes, False)
            self.by_number(number).memory[offset] = what
        count = -(-size // CHUNK)
        end = wire.EndItem(item.put_id, key, grant.generation, checksums=count)
        reply = self.step(wire.PutEnd(self.session, [end], b"crc!" * count))
        assert reply.outcomes == [wire.DONE]
        return grant

    def lookup(self, *keys):
        return self.step(wire.Lookup(self.session, False, False, [], list(keys)))

    def release(self, reply):
        self.step(wire.Release(self.session, [reply.lease]))

    def homes(self, key):
        """Return the names of the nodes where it can be read, having looked at what lies there."""
        reply = self.lookup(key)
        [found] = reply.items
        names = []
        for at, (number, offset) in enumerate(reply.places()):
            node = self.by_number(number)
            stripes = len(reply.places()) // found.copies
            what = node.memory[offset]
            assert what[:3] == (key, found.generation, at % stripes), (key, node.name, what)
            names.append(node.name)
        if reply.lease:
            self.release(reply)
        return sorted(set(names))

    def corrupt(self, key, name):
        """Change the bytes of a copy, unknown to the master."""
        node = self.nodes[name]
        for offset, what in node.memory.items():
            if what[0] == key:
                node.memory[offset] = (*what[:3], True)

    # --- tasks

    def create(self, kind, key=b"", source="", targets=()):
        return self.step(
            wire.TaskCreate(kind, key, source.encode(), [name.encode() for name in targets])
        )

    def task(self, id_, **query):
        [info] = self.step(wire.TaskQuery([id_], **query)).tasks
        return info
