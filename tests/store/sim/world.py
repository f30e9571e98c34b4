"""A world: what happens, drawn from one seed, and what must hold after each step of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import islice

from mooncake_core.native import _native
from tests.store import wire
from tests.store.sim import checks
from tests.store.sim.clients import Client
from tests.store.sim.nodes import StoreNode
from tests.store.sim.reads import Twin
from tests.store.sim.settings import draw

LONGEST_STEP_S = 0.4  # less than what makes the master think that it stood still
MOST_SLICES = 10_000
MOST_BEATS = 200


class World:
    """The master core, its twin, clients and nodes. `counts` says how much really happened."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.settings = draw(self.rng)
        self.doubts = random.Random(~seed)  # apart, so that worlds without are what they were
        self.doubt = self.doubts.choice([0.0, 0.0, 0.2, 0.7])  # how likely a client has some
        self.counts = Counter()
        self.core = wire.Core(_native, seed=seed, **self.settings.core)
        self.model = Twin(self.settings, self.counts, self.look)
        self.now_s, self.ids = 100.0, 1000
        self.nodes, self.clients, self.late, self.names = {}, [], [], {b"n"}
        for _ in range(self.settings.nodes):
            self.add_node()
        for _ in range(self.settings.clients):
            self.add_client()

    def fresh(self):
        """Return a number that was never used."""
        self.ids += 1
        return self.ids

    def any_key(self):
        """Return a key; a few are asked for again and again."""
        return b"k%d" % int(self.rng.random() ** 2 * self.settings.keys)

    # --- messages

    def say(self, message):
        """Deliver a message, or not, or twice, or much later; None when no answer comes back."""
        roll, loss = self.rng.random(), self.settings.loss
        if roll < loss:
            self.counts["messages late"] += 1
            self.late.append(message)
            return None
        reply = self.deliver(message)
        if roll < 2 * loss:
            self.counts["answers lost"] += 1
            return None
        self.may_say_again(message)
        return reply

    def may_say_again(self, message):
        """Keep what was heard, now and then, to say it once more much later."""
        if self.rng.random() < self.settings.loss:
            self.late.append(message)

    def deliver(self, message):
        """Let the master and its twin hear a message, and compare what they say."""
        fresh_id, model = self.fresh(), self.model
        reply = self.core.step(message, self.now_s, fresh_id)
        self.settle()
        model.advance(self.now_s)
        match message:
            case wire.Hello():
                model.hello(message, reply, fresh_id)
            case wire.Heartbeat():
                model.heartbeat(message, reply)
            case wire.PutStart():
                there = checks.listing(self.core)
                model.put_start(message, reply, there, checks.gone(model, there))
            case wire.PutEnd():
                model.put_end(message, reply)
            case wire.PutAbort():
                model.put_abort(message, reply)
            case wire.Lookup():
                model.lookup(message, reply)
            case wire.Release():
                model.release(message)
            case wire.Corrupt():
                model.corrupt(message)
            case wire.SetPin():
                model.set_pin(message, reply.flags)
            case wire.NodeRegister():
                model.register(message, reply, checks.listing(self.core), self.gone)
            case wire.NodeHeartbeat():
                model.node_heartbeat(message, reply, checks.listing(self.core), self.gone)
            case wire.TaskCreate():
                model.task_created(message, reply)
        return reply

    def speak_late(self):
        """Deliver what was said long ago."""
        if self.late:
            self.counts["late deliveries"] += 1
            self.deliver(self.late.pop(self.rng.randrange(len(self.late))))

    def look(self, key):
        """Return where the copies of a key are, as a client would see it that nobody knows of."""
        session = self.core.step(wire.Hello(0, 1), self.now_s, self.fresh()).session
        lookup = wire.Lookup(session, False, False, [], [key])
        reply = self.core.step(lookup, self.now_s)
        self.core.step(wire.Release(session, [reply.lease]), self.now_s)
        self.call(wire.GOODBYE, wire.One(session), None)
        self.settle()
        places, item = iter(reply.places()), reply.items[0]
        self.counts["hits" if item.found else "misses"] += 1
        stripes = len(self.model.keys[key].stripes)
        return [list(islice(places, stripes)) for _ in range(item.copies)]

    def gone(self, there):
        return checks.gone(self.model, there)

    def call(self, number, message, answer):
        """Ask what has no struct of its own; returns the answer."""
        reply = self.core.call(number, message, answer, self.now_s)
        self.settle()
        return reply

    # --- members

    def add_node(self):
        settings, number = self.settings, self.fresh()
        domain = b"d%d" % (len(self.nodes) % settings.domains)
        host = b"h%d" % (len(self.nodes) % 2)
        name = b"n%d" % number
        if self.rng.random() < 0.1:  # somebody's, or its own of before, which may be lost by now
            name = self.rng.choice(sorted(self.names))
        self.names.add(name)
        node = StoreNode(self, b"e:%d" % number, name, host, domain)
        self.nodes[node.node] = node

    def refill(self):
        """Another node in place of one that is gone, mostly."""
        if len(self.nodes) < self.settings.nodes and self.rng.random() < 0.8:
            self.add_node()

    def add_client(self):
        self.clients.append(Client(self, b"h%d" % self.rng.randrange(3)))

    def any_node(self):
        return self.rng.choice(list(self.nodes.values())) if self.nodes else None

    def crash(self, client):
        self.counts["clients crashed"] += 1
        self.clients.remove(client)
        self.add_client()

    def goodbye(self, client):
        self.counts["goodbyes"] += 1
        self.call(wire.GOODBYE, wire.One(client.session), None)
        self.model.advance(self.now_s)
        self.model.end_session(client.session)
        client.hello()

    def stall(self, client):
        self.counts["clients stalled"] += 1
        client.stalled_until_s = self.now_s + self.rng.uniform(0, 3) * self.short_ttl_s

    def rename(self, client):
        """A client that is another peer from now on, as after a fork."""
        client.peer = self.fresh()
        client.hello()

    def kill_node(self):
        node = self.any_node()
        if node:
            self.counts["nodes killed"] += 1
            del self.nodes[node.node]
            self.refill()

    def goodbye_node(self):
        node = self.any_node()
        if node:
            self.counts["nodes said goodbye"] += 1
            del self.nodes[node.node]
            self.call(wire.NODE_GOODBYE, wire.One(node.node), None)
            self.model.lose_node(node.node)
            self.refill()

    def disconnect_node(self):
        node = self.any_node()
        if node:
            self.core.native.node_disconnected(node.node, self.now_s)
            self.model.advance(self.now_s)
            self.model.disconnected(node.node)

    def silence_node(self):
        node = self.any_node()
        if node:
            self.counts["nodes silent"] += 1
            node.silent_until_s = self.now_s + self.rng.uniform(0, 3) * self.short_ttl_s

    def replace_node(self):
        """Whoever listens at its endpoint has other memory now."""
        node = self.any_node()
        if node:
            del self.nodes[node.node]
            again = StoreNode(self, node.endpoint, node.name, node.host, node.domain)
            self.nodes[again.node] = again

    # --- objects

    def remove(self):
        keys = [self.any_key() for _ in range(self.rng.randint(1, 3))]
        flags = self.call(wire.REMOVE, wire.Keys(keys), wire.Flags).flags
        self.model.remove_keys(keys, flags)

    def corrupt(self):
        key = self.any_key()
        there = self.model.keys.get(key)
        generation = there.generation if there and self.rng.random() < 0.9 else 1
        nodes = [place[0] for copy in there.copies for place in copy.places] if there else []
        self.deliver(wire.Corrupt(key, generation, self.rng.choice([0, *nodes, *nodes])))

    def pin(self):
        pin = self.rng.choice([wire.NO_PIN, wire.SOFT_PIN, wire.SOFT_PIN, wire.HARD_PIN])
        soft_us = self.rng.choice([0, 500_000, 10**9])
        self.deliver(wire.SetPin(pin, soft_us, [self.any_key() for _ in range(2)]))

    def task(self):
        """Ask for a copy, a move or a drain, or for the end of one."""
        names = [*(node.name for node in self.nodes.values()), b"nobody"]
        kind = self.rng.choice([wire.COPY, wire.MOVE, wire.MOVE, wire.DRAIN, wire.UNDRAIN])
        targets = self.rng.sample(names, self.rng.choice([0, 0, 1]))
        key, source = self.any_key(), self.rng.choice(names)
        if kind == wire.UNDRAIN and self.rng.random() < 0.7:
            source = self.rng.choice([source, *(self.names_of(self.model.draining()))])
        there = self.model.keys.get(key)
        if kind == wire.MOVE and there and self.rng.random() < 0.7:
            nodes = {at for copy in there.copies for at, _ in copy.places}
            source = self.rng.choice([source, *self.names_of(nodes)])
        self.deliver(wire.TaskCreate(kind, key, source, targets))

    def names_of(self, nodes):
        return sorted(self.model.nodes[at].name for at in nodes if at in self.model.nodes)

    def cancel(self):
        tasks = list(self.model.background.tasks)
        if tasks:
            self.counts["tasks cancelled"] += 1
            self.deliver(wire.TaskQuery([self.rng.choice(tasks)], True))
            self.model.loosen_all()

    # --- time

    @property
    def short_ttl_s(self):
        return min(self.settings.client_ttl_s, 5.0)

    def wait(self):
        self.pass_time(self.rng.choice([0.01, 0.3, self.rng.random() * 3 * self.short_ttl_s]))

    def stop_master(self):
        """The master stands still; meanwhile nobody can be heard, and nobody may be expelled."""
        self.counts["master stood still"] += 1
        self.now_s += self.rng.choice([0.6, 7.0, 1000.0])
        self.tick()

    def pass_time(self, seconds):
        end_s = self.now_s + seconds
        step_s = min(LONGEST_STEP_S, max(self.short_ttl_s / 5, seconds / 30))
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + step_s)
            self.tick()
            self.beats()

    def tick(self):
        self.core.native.tick(self.now_s)
        self.model.advance(self.now_s)
        self.model.tick()
        self.settle()

    def beats(self):
        for client in list(self.clients):
            is_due = self.now_s - client.beat_s >= self.short_ttl_s / 4
            if is_due and self.now_s >= client.stalled_until_s:
                client.beat()
        for node in list(self.nodes.values()):
            is_due = self.now_s - node.beat_s >= self.short_ttl_s / 4
            if is_due and self.now_s >= node.silent_until_s:
                node.beat()

    def settle(self):
        """Let the master do what it has put off; it must come to an end."""
        for _ in range(MOST_SLICES):
            if not self.core.native.has_background:
                return
            self.core.native.run_slice(self.now_s)
        raise AssertionError("the master is never idle")

    # --- steps

    def act(self):
        """Let one thing happen."""
        weights = self.settings.weights
        action = self.rng.choices(list(weights), list(weights.values()))[0]
        if action == "late":
            return self.speak_late()
        if hasattr(Client, action) or action in ("crash", "goodbye", "stall", "rename"):
            client = self.rng.choice(self.clients)
            if self.now_s < client.stalled_until_s:
                return None
            if hasattr(client, action):
                return getattr(client, action)()
            return getattr(self, action)(client)
        return getattr(self, action)()

    def check(self):
        """Compare all that the master says of itself with the twin."""
        self.settle()
        self.core.native.check()
        tasks = self.deliver(wire.TaskQuery()).tasks
        self.settle()
        checks.check_objects(self.model, checks.listing(self.core))
        stats = self.core.stats(self.now_s)
        checks.check_copies(self.model, stats, tasks)
        checks.check_memory(self.model, stats)
        checks.check_counts(self.model, stats)

    def run(self, steps):
        """Let so many things happen, then let everyone leave."""
        self.check()
        for _ in range(steps):
            self.act()
            self.check()
        self.end()

    def end(self):
        """Nothing is left of a world that everyone has left."""
        while self.late:
            self.speak_late()
            self.check()
        self.settings = replace(self.settings, fence=1.0, fetch=1.0, loss=0.0)
        self.clients = []
        for session in list(self.model.sessions):
            self.call(wire.GOODBYE, wire.One(session), None)
            self.model.end_session(session)
        for node in set(self.model.nodes) - set(self.nodes):
            self.call(wire.NODE_GOODBYE, wire.One(node), None)
            self.model.lose_node(node)
        self.beat_all()
        keys = list(self.model.keys)
        flags = self.call(wire.REMOVE, wire.Keys(keys), wire.Flags).flags
        self.model.remove_keys(keys, flags)
        self.beat_all()
        stats = self.core.stats(self.now_s)
        left = (stats.clients, stats.objects, stats.writing, stats.leases, stats.groups)
        assert left == (0, 0, 0, 0, 0), left
        assert (stats.space.used, stats.space.quarantined) == (0, 0), stats

    def beat_all(self):
        """Hear every node until all copies have ended: it learns what to do, does it, says so."""
        for beats in range(MOST_BEATS):
            if beats >= 4 and not self.core.stats(self.now_s).copy_orders:
                return
            for node in list(self.nodes.values()):
                node.beat()
            self.check()
        raise AssertionError("copies never end")
