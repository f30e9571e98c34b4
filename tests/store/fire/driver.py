"""A store of real processes under fire: who reads, writes, stops and dies, and what is checked.

One thread a client process asks it to read, put and remove, and tells the oracle; one looks at the
master's nodes; one stops and kills nodes and clients. Their choices follow from the seed, the
moments at which they fall do not.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time

from tests.store.fire.cast import MemberGone, new_master, new_member, new_node
from tests.store.fire.link import Watcher
from tests.store.fire.oracle import Oracle
from tests.store.fire.report import Report
from tests.store.processes import eventually

TTL_S = 2.0
LEASE_S = 2.0
NODES, DOMAINS, MEMBERS = 4, 3, 6
CAPACITY, TIGHT = "24 MiB", "2 MiB"
SLOTS = 160
MOST_DOWN = 2


class Fire:
    """One run. `run` carries it out and returns the report.

    Tight, there is room for half of what is put: memory is used again all the time, and nobody
    knows what must hit.
    """

    def __init__(self, seed, seconds, *, is_tight=False):
        self.seed, self.seconds, self.is_tight = seed, seconds, is_tight
        self.report = Report(seed, seconds, window_s=max(3.0, seconds / 60), is_rated=not is_tight)
        self.oracle, self.lock = Oracle(), threading.Lock()
        self.generation = dict.fromkeys(range(SLOTS), 0)
        self.done = threading.Event()
        self.threads, self.errors = [], []
        self.master = new_master(
            listen="127.0.0.1:0", admin="127.0.0.1:0", client_ttl_s=TTL_S, lease_s=LEASE_S
        )
        self.rpc = self.master.start()["rpc"]
        self.watcher = Watcher(self.rpc)
        self.nodes = [self._new_node(number) for number in range(NODES)]
        self.node_ids, self.domains = {}, {}
        self.endpoints = {node: node.start()["transfer"] for node in self.nodes}
        self.members = [self._new_member(number) for number in range(MEMBERS)]
        for member in self.members:
            member.start()
        eventually(lambda: self._look_at_nodes() == NODES, "all nodes are there")

    def _new_node(self, number):
        return new_node(
            master=self.rpc,
            capacity=TIGHT if self.is_tight else CAPACITY,
            name=f"node-{number}",
            domain=f"domain-{number % DOMAINS}",
        )

    def _new_member(self, number):
        same_host = ("shm", "network")[number % 2]
        return new_member(
            transfer={"same_host": same_host}, client={"master": self.rpc, "timeout_s": 2.0}
        )

    @property
    def replay(self):
        """The command that lays this fire again."""
        tight = " --tight" * self.is_tight
        return f"python -m tests.store.fire --seconds {self.seconds:g} --seed {self.seed}{tight}"

    def run(self):
        """Burn for so many seconds, put it out, and look at what is left."""
        self.started = time.monotonic()
        self._note_space(self.watcher.stats())
        self._spawn(self._watch_nodes)
        for number, member in enumerate(self.members):
            self._spawn(self._work, member, number)
        self._disturb()
        self.done.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors
        self._check_commits()
        self._check_space()
        return self.report

    def _spawn(self, work, *arguments):
        def guarded():
            try:
                work(*arguments)
            except Exception as error:
                self.errors.append(repr(error))
                raise

        thread = threading.Thread(target=guarded)
        thread.start()
        self.threads.append(thread)

    def count(self, what, number=1):
        with self.lock:
            self.report.counts[what] += number

    def wrong(self, what):
        with self.lock:
            self.report.wrong.append(what)

    # --- clients ---

    def _work(self, member, number):
        rng = random.Random(f"{self.seed} member {number}")
        slots = [slot for slot in range(SLOTS) if slot % MEMBERS == number]
        while not self.done.is_set():
            try:
                self._act(member, rng, slots)
            except MemberGone:
                self._restart_member(member)

    def _restart_member(self, member):
        while True:
            if not member.is_killed:
                self.wrong("a client died by itself")
            try:
                return member.start()
            except MemberGone:  # again
                continue

    def _act(self, member, rng, slots):
        roll, slot = rng.random(), rng.choice(slots)
        key = self._key(slot)
        with self.lock:
            is_served = self.oracle.is_served(key)
        if not is_served:
            self._put(member, slot, key)
        elif roll < 0.1:
            self._remove(member, slot, key)
        else:
            self._read(member, rng)

    def _key(self, slot):
        return f"slot-{slot}.{self.generation[slot]}"

    def _retire(self, slot, key):
        """Give a key up whose put or remove ended in a way that nobody knows."""
        with self.lock:
            self.oracle.doubt(key)
            self.generation[slot] += 1

    def _put(self, member, slot, key):
        with self.lock:
            version = self.oracle.begin_put(key)
        try:
            answer = member.tell(["put", [key, version, 1 + slot % 2]])
        except MemberGone:
            self._retire(slot, key)
            raise
        if "error" in answer:
            self.count(f"put_{answer['error']}")
            return self._retire(slot, key)
        with self.lock:
            nodes = self.watcher.nodes_of(key) if answer["value"] else ()
            self.report.counts["puts"] += answer["value"]
            self.report.counts["copies"] += len(nodes)
            if len({self.domains.get(node, node) for node in nodes}) < len(nodes):
                self.report.wrong.append(f"copies of {key} share a domain")
            self.oracle.end_put(key, is_stored=answer["value"], nodes=nodes)
        return None

    def _remove(self, member, slot, key):
        with self.lock:
            self.oracle.begin_remove(key)
        try:
            answer = member.tell(["remove", [key]])
        except MemberGone:
            self._retire(slot, key)
            raise
        if "error" in answer:
            return self._retire(slot, key)
        self.count("removes")
        with self.lock:
            self.oracle.end_remove(key)
        return None

    def _read(self, member, rng):
        keys = [self._key(slot) for slot in rng.sample(range(SLOTS), rng.randrange(1, 9))]
        how = rng.choice(["get", "get", "get_into", "read_parts"])
        missing = self._read_keys(member, how, keys)
        end = time.monotonic() + 4 * TTL_S
        while missing and time.monotonic() < end:
            missing = self._ask_again(member, missing)
        self._note_lost(missing)

    def _note_lost(self, tickets):
        with self.lock:
            self.report.lost_commits += len(tickets)
            self.report.wrong += [f"lost: {ticket}" for ticket in tickets]

    def _read_keys(self, member, how, keys):
        """Read, count, and return the tickets of those that should have been there."""
        began_s, before = time.monotonic() - self.started, member.disturbances
        with self.lock:
            tickets = [self.oracle.begin_read(key) for key in keys]
            is_stopped = member.is_stopped
        try:
            answer = member.tell([how, [keys]])
        except MemberGone:
            self.report.misses["reader killed"] += len(keys)
            raise
        versions = answer.get("value", [None] * len(keys))
        is_calm = not is_stopped and member.disturbances == before
        missing = []
        with self.lock:
            for ticket, version in zip(tickets, versions, strict=True):
                must_hit = is_calm and not self.is_tight and self.oracle.must_hit(ticket)
                self.report.add_read(began_s, must_hit=must_hit, is_hit=version is not None)
                if version is None:
                    self.report.misses[self._cause(ticket, answer, must_hit, is_calm)] += 1
                elif version == "foreign" or not self.oracle.is_right(ticket, version):
                    self.report.wrong_bytes += 1
                    self.report.wrong.append(f"{version} by {how} of {ticket}")
                if must_hit and version is None:
                    missing.append(ticket)
                if self.is_tight and version is None:
                    self.oracle.may_be_gone(ticket)
        return missing

    def _ask_again(self, member, tickets):
        answer = member.tell(["get", [[ticket.key for ticket in tickets]]])
        versions = answer.get("value", [None] * len(tickets))
        with self.lock:
            return [
                ticket
                for ticket, version in zip(tickets, versions, strict=True)
                if version is None and self.oracle.must_hit(ticket)
            ]

    def _cause(self, ticket, answer, must_hit, is_calm):
        if must_hit:
            return answer.get("error", "unexplained")
        if not is_calm:
            return "reader stopped"
        if ticket.committed is None:
            return "not there"
        return "no node" if not ticket.lives else "changed meanwhile"

    # --- nodes ---

    def _watch_nodes(self):
        while not self.done.wait(0.05):
            with self.lock:
                self._look_at_nodes()

    def _look_at_nodes(self):
        """Tell the oracle which nodes the master has; return how many of ours are online."""
        online = 0
        listed = {node.endpoint.decode(): node for node in self.watcher.stats().nodes}
        self.domains = {node.node: node.domain for node in listed.values()}
        for child, endpoint in self.endpoints.items():
            node = listed.get(endpoint)
            known = self.node_ids.get(child)
            if known is not None and (node is None or node.node != known):
                self._note_loss(child, known)
            if node is not None and known != node.node:
                self.node_ids[child] = node.node
                if not child.is_stopped:
                    self.oracle.node_up(node.node)
            online += node is not None and node.state == 0
        return online

    def _note_loss(self, child, node):
        self.oracle.node_down(node)
        del self.node_ids[child]
        self.report.counts["nodes_lost"] += 1
        if time.monotonic() > getattr(child, "calm_from_s", 0):
            self.report.wrong.append(f"node {node:x} was lost though nobody had touched it")

    # --- fire ---

    def _disturb(self):
        """Stop and kill until the time is over, and end with everything going."""
        rng = random.Random(f"{self.seed} fire")
        self.due, self.order, self.down = [], itertools.count(), set()
        end = self.started + self.seconds
        while (now := time.monotonic()) < end or self.down:
            while self.due and self.due[0][0] <= now:
                heapq.heappop(self.due)[2]()
            if now < end and rng.random() < 0.5:
                self._strike(rng)
            time.sleep(0.2)

    def _later(self, delay_s, what):
        heapq.heappush(self.due, (time.monotonic() + delay_s, next(self.order), what))

    def _strike(self, rng):
        kind, is_fatal = rng.choice([self.nodes, self.members]), rng.random() < 0.3
        victim, pause_s = rng.choice(kind), rng.uniform(0.1, 2 * TTL_S)
        is_up = victim.process is not None and victim.process.poll() is None
        if not is_up or victim in self.down or len(self.down & set(kind)) >= MOST_DOWN:
            return
        self.down.add(victim)
        name = "nodes" if kind is self.nodes else "clients"
        self.count(f"{name}_{'killed' if is_fatal else 'stopped'}")
        if is_fatal:
            self._kill(victim, pause_s)
        else:
            self._stop(victim, pause_s)

    def _kill(self, victim, pause_s):
        if victim in self.members:  # its own thread starts it again
            victim.kill()
            return self._later(1.0, lambda: self.down.discard(victim))
        with self.lock:
            victim.calm_from_s = float("inf")
            victim.kill()
            self._node_down(victim)
        return self._later(pause_s, lambda: self._restart(victim))

    def _stop(self, victim, pause_s):
        with self.lock:
            victim.calm_from_s = float("inf")
            victim.stop()
            self._node_down(victim)
        self._later(pause_s, lambda: self._resume(victim))

    def _node_down(self, victim):
        if (node := self.node_ids.get(victim)) is not None:
            self.oracle.node_down(node)

    def _restart(self, victim):
        def start():
            endpoint = victim.start()["transfer"]
            with self.lock:
                self.node_ids.pop(victim, None)
                self.endpoints[victim] = endpoint
                victim.calm_from_s = time.monotonic() + TTL_S
                self.down.discard(victim)

        self._spawn(start)

    def _resume(self, victim):
        with self.lock:
            victim.resume()
            victim.calm_from_s = time.monotonic() + TTL_S
            if (node := self.node_ids.get(victim)) is not None:
                self.oracle.node_up(node)
            self.down.discard(victim)

    # --- the end ---

    def _check_commits(self):
        """Everything that was committed and of which a node was never lost is there."""
        eventually(lambda: self._look_at_nodes() == NODES, "all nodes are there again")
        with self.lock:
            keys = [key for key in self.oracle.entries if self.oracle.is_served(key)]
        for at in range(0, 0 if self.is_tight else len(keys), 32):
            batch = keys[at : at + 32]
            self._note_lost(self._read_keys(self.members[0], "get", batch))
        self.report.counts["commits_checked"] = len(keys)

    def _check_space(self):
        """Nothing is left of what was removed, nor of those who have left."""
        counters = self.watcher.stats().counters
        if counters.corrupt or bool(counters.evictions) != self.is_tight:
            self.wrong(f"{counters}: other corruption or evictions than were due")
        keys = list(self.oracle.entries)
        eventually(lambda: self._is_empty(keys), "all space is free again")
        for member in self.members:
            assert member.leave(), "a client ended badly"
        eventually(lambda: self.watcher.stats().clients <= 1, "all sessions have ended")

    def _is_empty(self, keys):
        self.members[0].tell(["remove_all", [keys]])
        stats = self.watcher.stats()
        space = stats.space
        self._note_space(stats)
        left = (stats.objects, stats.writing, stats.leases, space.used, space.quarantined)
        return left == (0, 0, 0, 0, 0)

    def _note_space(self, stats):
        self.report.used_bytes.append(stats.space.used + stats.space.quarantined)

    def close(self):
        """End every process."""
        self.done.set()
        self.watcher.close()
        for child in [*self.members, *self.nodes, self.master]:
            child.close()
