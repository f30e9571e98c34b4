"""Clients: they put and read, crash, stall, repeat themselves and are heard late."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tests.store import wire
from tests.store.sim.memory import chunk_count


@dataclass
class Put:
    """What a client knows of a put of its own."""

    item: wire.PutItem
    options: wire.PutOptions
    grant: wire.Grant | None = None
    places: list = field(default_factory=list)

    @property
    def chunks(self):
        item = self.item
        return chunk_count(item.size_bytes, item.part_bytes) if self.options.has_checksums else 0


class Client:
    """One client; `world` carries its messages."""

    def __init__(self, world, host):
        self.world, self.rng, self.host = world, world.rng, host
        self.peer, self.session = world.fresh(), 0
        self.stalled_until_s = self.beat_s = 0.0
        self.puts, self.leases, self.pins, self.last_lease = {}, set(), set(), 0
        self.hello()

    def ask(self, message):
        """Say something; None: no answer has come, or the session is over and another begun."""
        reply = self.world.say(message)
        if reply is not None and not reply.is_known:
            self.hello()
            return None
        return reply

    def hello(self):
        """Begin a session, as another peer if this one is fenced."""
        hello = wire.Hello(self.session, self.peer, self.host)
        reply = self.world.deliver(hello)
        self.world.may_say_again(hello)
        if reply.is_fenced:
            self.peer = self.world.fresh()
            reply = self.world.deliver(wire.Hello(self.session, self.peer, self.host))
        self.session, self.beat_s = reply.session, self.world.now_s
        self.puts, self.leases, self.pins, self.last_lease = {}, set(), set(), 0

    def beat(self):
        """Renew leases, now and then not all of them."""
        self.beat_s = self.world.now_s
        leases = sorted(self.leases | self.pins)
        if self.rng.random() < 0.1:
            leases = leases[1:]
        beat = wire.Heartbeat(self.session, leases)
        if self.rng.random() < 0.8:  # else it is asking for one
            beat.pins, beat.pins_upto = sorted(self.pins), self.last_lease
        reply = self.ask(beat)
        if reply:
            self.leases -= set(reply.ended)
            self.last_lease = max(self.last_lease, reply.last_lease)

    # --- puts

    def new_item(self):
        """Draw a put: most are plain; each oddity comes often enough."""
        rng, settings = self.rng, self.world.settings
        size = rng.choice([0, 1, 100, settings.largest, int(settings.largest ** rng.random())])
        part = rng.choice([0, 0, 0, max(1, size // 3), size, 1 if size < 3000 else 0])
        key = self.world.any_key()
        item = wire.PutItem(self.world.fresh(), key, size, part)
        if rng.random() < 0.5:
            item.parent, item.depth = self.world.any_key(), rng.randrange(5)
        if rng.random() < 0.2:
            item.group, item.group_size = b"g%d" % rng.randrange(4), rng.choice([0, 2, 2, 3])
        return item

    def new_options(self):
        rng = self.rng
        names = [node.name for node in self.world.nodes.values()]
        return wire.PutOptions(
            replicas=rng.choice([1, 1, 1, 2, 2, 3, 16]),
            is_strict=rng.random() < 0.2,
            is_upsert=rng.random() < 0.2,
            pin=rng.choices([wire.NO_PIN, wire.SOFT_PIN, wire.HARD_PIN], [20, 4, 1])[0],
            soft_pin_us=rng.choice([0, 1_000_000, 10**12]),
            has_checksums=rng.random() < 0.9,
            preferred=rng.sample([*names, b"nobody"], rng.choice([0, 0, 0, 1])),
        )

    def start(self, puts):
        """Ask for room, and again for as long as it is being made, or the answer is lost."""
        options = [put.options for put in puts]
        items = [put.item for put in puts]
        for at, item in enumerate(items):
            item.options = at
        if self.rng.random() < 0.01:
            items[0].options = 17
        self.puts |= {put.item.put_id: put for put in puts}
        for _ in range(self.rng.choice([1, 2, 100])):
            reply = self.ask(wire.PutStart(self.session, options, items))
            if reply is None:
                if not self.puts:  # the session is over
                    return
                continue
            places = iter(reply.places())
            for put, grant in zip(puts, reply.items, strict=True):
                self.started(put, grant, places)
            if all(grant.outcome != wire.MAKING_ROOM for grant in reply.items):
                return

    def started(self, put, grant, places):
        if grant.outcome == wire.STARTED:
            stripes = len(self.world.model.layout(put.item))
            put.grant = grant
            put.places = [list(itertools.islice(places, stripes)) for _ in range(grant.copies)]
        elif grant.outcome != wire.MAKING_ROOM:
            self.puts.pop(put.item.put_id, None)

    def put(self):
        if self.puts and self.rng.random() < 0.1:  # one that was not answered, or waits for room
            return self.start([self.rng.choice(list(self.puts.values()))])
        return self.start([Put(self.new_item(), self.new_options())])

    def put_batch(self):
        """Start several at once; of a group only where that evicts nobody of it meanwhile."""
        puts = [Put(self.new_item(), self.new_options()) for _ in range(self.rng.randint(2, 4))]
        if not self.world.model.has_plenty(sum(put.item.size_bytes for put in puts)):
            for put in puts:
                put.item.group, put.item.group_size = b"", 0
        self.start(puts)

    def some_puts(self, most):
        puts = list(self.puts.values())
        return self.rng.sample(puts, min(len(puts), self.rng.randint(1, most)))

    def end(self):
        """Commit; now and then with copies that were lost, or of what was never granted."""
        items, sums, all_dirty = [], b"", []
        for put in self.some_puts(3):
            lost, dirty = self.failures(put)
            generation = put.grant.generation if put.grant else 0
            names = put.item.put_id, put.item.key
            if self.rng.random() < 0.05:  # others keep their own checksums
                items.append(wire.EndItem(0, put.item.key, generation, checksums=put.chunks + 1))
                sums += b"else" * (put.chunks + 1)
            failed = self.failed()
            item = wire.EndItem(*names, generation, lost, dirty, failed, put.chunks)
            items.append(item)
            sums += b"".join(put.item.put_id.to_bytes(4, "little") for _ in range(put.chunks))
            all_dirty += dirty
        message = wire.PutEnd(self.session, items, sums)
        if not items or not self.ask(message):
            return
        for item in items:
            self.puts.pop(item.put_id, None)
        if self.rng.random() < 0.1:
            self.ask(message)
        self.after_failure(all_dirty)

    def failures(self, put):
        rng, lost, dirty = self.rng, [], []
        if rng.random() < 0.1:
            for at, copy in enumerate(put.places):
                if rng.random() < 0.5:
                    lost.append(at)
                    dirty += [node for node, _ in copy if rng.random() < 0.5]
        return lost, dirty

    def failed(self):
        """Return nodes of which it says that they took nothing, granted to it or not."""
        world = self.world
        if world.doubts.random() >= world.doubt:
            return []
        return [node for node in world.nodes if world.doubts.random() < 0.5]

    def after_failure(self, dirty):
        """Be another peer, who has written nothing."""
        if dirty:
            self.peer = self.world.fresh()
            self.hello()

    def abort(self):
        items = []
        for put in self.some_puts(2):
            places = [place for copy in put.places for place in copy]
            dirty = [node for node, _ in places if self.rng.random() < 0.3]
            items.append(wire.AbortItem(put.item.put_id, dirty, self.failed()))
        if self.rng.random() < 0.1:
            items.append(wire.AbortItem(self.world.fresh()))
        if items and self.ask(wire.PutAbort(self.session, items)):
            for item in items:
                self.puts.pop(item.put_id, None)
            self.after_failure([node for item in items for node in item.dirty])

    # --- reads

    def lookup(self):
        rng = self.rng
        keys = [self.world.any_key() for _ in range(rng.randint(1, 5))]
        held = sorted(self.leases | self.pins)
        released = rng.sample(held, min(len(held), rng.choice([0, 0, 1, 3])))
        released = [number for number in released if not self.holds_any(number, keys)]
        is_pin = rng.random() < 0.1
        message = wire.Lookup(self.session, rng.random() < 0.5, is_pin, released, keys)
        reply = self.ask(message)
        if reply:
            self.leases -= set(released)
            self.pins -= set(released)
            if reply.lease:
                (self.pins if is_pin else self.leases).add(reply.lease)

    def holds_any(self, number, keys):
        """Whether a lease is of one of these: it may end only after they are held once more."""
        lease = self.world.model.leases.get(number)
        return lease is not None and any(each.key in keys for each in lease.objects)

    def release(self):
        held = sorted(self.leases | self.pins)
        released = self.rng.sample(held, min(len(held), self.rng.choice([1, 1, 5])))
        self.leases -= set(released)
        self.pins -= set(released)
        self.world.say(wire.Release(self.session, released))
