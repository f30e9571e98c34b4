"""A MasterCore with one session, spoken to in the words of its users: for tests of its rules."""

from __future__ import annotations

from mooncake_core.native import _native
from tests.store import wire

EPOCH, PEER, TTL_S, LEASE_S = 77, 5, 3.0, 5.0
HEADER, UNIT, CHUNK = 64, 64, 256 * 1024


def extent_bytes(size):
    return -(-(HEADER + size) // UNIT) * UNIT


class Store:
    """Nodes 1 to `nodes` of `capacity` bytes each, and session 9 of peer 5. Time stands still."""

    def __init__(self, *, nodes=1, capacity=64 << 10, **options):
        self.core = wire.Core(_native, epoch=EPOCH, client_ttl_s=TTL_S, lease_s=LEASE_S, **options)
        self.now_s, self.put_id = 0.0, 0
        for node in range(1, nodes + 1):
            name = b"n%d" % node
            self.step(wire.register(node, EPOCH, b"host:%d" % node, capacity, name=name))
        self.session = self.step(wire.Hello(0, PEER), fresh_id=9).session

    def step(self, message, **options):
        answer = self.core.step(message, self.now_s, **options)
        self.core.native.check()
        return answer

    def call(self, number, message, answer):
        reply = self.core.call(number, message, answer, self.now_s)
        self.core.native.check()
        return reply

    def start(self, key, size=1000, *, parent=b"", depth=0, group=b"", group_size=0, **options):
        """Return the reply and the item, whose put id is a new one."""
        self.put_id += 1
        part = options.pop("part_bytes", 0)
        item = wire.PutItem(self.put_id, key, size, part, 0, parent, depth, group, group_size)
        return self.step(wire.put_start(self.session, item, **options)), item

    def end(self, item, grant):
        count = chunks(item.size_bytes, item.part_bytes)
        end = wire.EndItem(item.put_id, item.key, grant.generation, checksums=count)
        return self.step(wire.PutEnd(self.session, [end], b"crc!" * count)).outcomes[0]

    def put(self, key, size=1000, **options):
        """Put it, asking again as long as room is being made; return the last outcome."""
        reply, item = self.start(key, size, **options)
        options = {
            name: options[name] for name in options if name in wire.PutOptions.__struct_fields__
        }
        while reply.items[0].outcome == wire.MAKING_ROOM:
            reply = self.step(wire.put_start(self.session, item, **options))
        if reply.items[0].outcome == wire.STARTED:
            assert self.end(item, reply.items[0]) == wire.DONE
        return reply.items[0].outcome

    def lookup(self, *keys, is_pin=False, stop_at_miss=False, session=None):
        wanted = wire.Lookup(session or self.session, stop_at_miss, is_pin, [], list(keys))
        return self.step(wanted)

    def release(self, *leases):
        self.step(wire.Release(self.session, list(leases)))

    def use(self, *keys):
        self.release(self.lookup(*keys).lease)

    def exists(self, *keys):
        return list(self.call(wire.EXISTS_KEYS, wire.Keys(list(keys)), wire.Flags).flags)

    def remove(self, *keys):
        return list(self.call(wire.REMOVE, wire.Keys(list(keys)), wire.Flags).flags)

    def describe(self, key):
        return self.step(wire.Describe([key])).objects[0]

    def list(self, prefix=b"", limit=100):
        """Return the keys of all pages."""
        keys, cursor = [], 0
        while True:
            page = self.step(wire.List(cursor, limit, prefix))
            keys += [one.key for one in page.objects]
            cursor = page.cursor
            if cursor == 0:
                return keys

    def stats(self):
        return self.core.stats(self.now_s)

    def pass_time(self, seconds, *, alive=True, nodes=()):
        """Let it pass in steps of 0.1 s; the session (if alive) and the nodes are heard."""
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s += 0.1
            if alive:
                self.step(wire.Heartbeat(self.session))
            for node in nodes:
                self.step(wire.NodeHeartbeat(node))
            self.core.native.tick(self.now_s)

    def settle(self):
        """Run what waits for slices; return how many it took."""
        slices = 0
        while self.core.native.has_background:
            self.core.native.run_slice(self.now_s)
            slices += 1
        self.core.native.check()
        return slices


def chunks(size, part_bytes=0):
    if part_bytes == 0 or part_bytes >= size:
        return -(-size // CHUNK)
    return size // part_bytes * -(-part_bytes // CHUNK) + -(-(size % part_bytes) // CHUNK)
