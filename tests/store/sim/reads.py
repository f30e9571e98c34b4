"""What the twin expects of lookups, leases, removals, and of sessions and nodes."""

from __future__ import annotations

from itertools import islice

from tests.store import wire
from tests.store.sim.memory import UNIT_BYTES, Memory
from tests.store.sim.model import SUSPECTED, Lease, Node, Session
from tests.store.sim.puts import LONGEST_PIN_S, Puts


class Twin(Puts):
    """A twin that knows every message."""

    # --- sessions

    def hello(self, message, reply, fresh_id):
        self.end_session(message.previous)
        assert reply.is_fenced == (message.peer_id in self.fenced)
        assert reply.lease_us == round(self.settings.lease_s * 1e6)
        if reply.is_fenced:
            self.counts["fenced hellos"] += 1
            return
        assert reply.session == fresh_id
        self.sessions[reply.session] = Session(message.peer_id, message.host_id, self.now_s)

    def heartbeat(self, message, reply):
        session = self.known(message.session)
        assert reply.is_known == (session is not None)
        if session is None:
            return
        ended = [number for number in message.leases if number not in session.leases]
        assert reply.ended == ended
        for number in set(message.leases) - set(ended):
            lease = self.leases[number]
            if not lease.is_pin:
                self.counts["leases renewed"] += 1
                lease.end_s = self.now_s + self.settings.lease_s
        assert reply.last_lease >= max(self.leases, default=0)
        for number in sorted(session.leases):
            is_said = message.pins_after < number <= message.pins_upto
            if self.leases[number].is_pin and is_said and number not in message.pins:
                self.counts["lost pins ended"] += 1
                self.end_lease(number)

    # --- lookups

    def lookup(self, message, reply):
        session = self.known(message.session)
        assert reply.is_known == (session is not None)
        if session is None:
            return
        self.release_of(session, message.released)
        places, sums, held = iter(reply.places()), reply.checksums, []
        is_cut = False
        for key, item in zip(message.keys, reply.items, strict=True):
            there = self.keys.get(key)
            is_found = self.is_readable(there) and not is_cut
            assert item.found == is_found, (key, item, there)
            is_cut = is_cut or (message.stop_at_miss and not is_found)
            self.counts["hits" if is_found else "misses"] += 1
            if is_found:
                sums = self.found(there, item, places, sums)
                held.append(there)
        assert not sums and next(places, None) is None
        assert bool(reply.lease) == bool(held)
        if held:
            assert reply.lease not in self.leases
            self.hold(session, message, reply.lease, held)

    def found(self, there, item, places, sums):
        told = (item.generation, item.size_bytes, item.stripe_bytes)
        assert told == (there.generation, there.size, self.stripe_of(there)), (there, item)
        assert item.has_checksums == there.options.has_checksums or there.size == 0, item
        copies = [list(islice(places, len(there.stripes))) for _ in range(item.copies)]
        readable = [copy.places for copy in there.copies if self.can_be_read(copy)]
        assert sorted(copies) == sorted(readable), (there, copies, readable)
        assert sums[: len(there.sums)] == there.sums
        return sums[len(there.sums) :]

    def hold(self, session, message, number, held):
        self.counts["pins" if message.is_pin else "leases"] += 1
        end_s = self.now_s + self.settings.lease_s
        self.leases[number] = Lease(message.session, message.is_pin, end_s, held)
        session.leases.add(number)
        session.has_pinned = session.has_pinned or message.is_pin
        for each in held:
            each.holds += 1

    def release(self, message):
        session = self.known(message.session)
        if session:
            self.release_of(session, message.leases)

    def release_of(self, session, leases):
        for number in leases:
            if number in session.leases:
                self.counts["leases released"] += 1
                self.end_lease(number)

    # --- objects

    def remove_keys(self, keys, flags):
        for key, flag in zip(keys, flags, strict=True):
            there = self.keys.get(key)
            is_there = there is not None and there.state == "committed"
            assert flag == is_there, (key, there)
            if is_there:
                self.counts["removals"] += 1
                self.counts["removals of what is read"] += there.holds > 0
                self.remove(there)

    def corrupt(self, message):
        there = self.keys.get(message.key)
        if there is None or there.state != "committed" or there.generation != message.generation:
            return
        for copy in list(there.copies):
            if copy.is_retired or there.state != "committed":
                continue
            if message.node in (0, *(node for node, _ in copy.places)):
                self.counts["corrupt copies"] += 1
                self.retire(there, copy)

    def set_pin(self, message, flags):
        for key, flag in zip(message.keys, flags, strict=True):
            there = self.keys.get(key)
            is_there = there is not None and there.state == "committed"
            assert flag == (is_there and message.pin <= wire.HARD_PIN)
            if flag:
                there.pin = message.pin
                soft_s = min(message.soft_pin_us / 1e6, LONGEST_PIN_S)
                there.soft_until_s = self.now_s + soft_s
                self.counts["pins set"] += 1

    # --- nodes

    def register(self, message, reply, there, gone):
        is_welcome = (
            message.node != 0
            and message.epoch == self.settings.epoch
            and message.node not in self.lost_nodes
            and message.capacity_bytes >= UNIT_BYTES
        )
        if not is_welcome:
            assert not reply.is_known
            self.counts["nodes refused"] += 1
            return
        if message.node in self.nodes:
            assert reply.is_known
            return self.node_heartbeat(wire.NodeHeartbeat(message.node), reply, there, gone)
        for node in self.find_endpoint(message.endpoint):
            self.counts["nodes replaced"] += 1
            self.lose_node(node)
        is_taken = message.name in {node.name for node in self.nodes.values()}
        assert (reply.refusal == wire.NAME_TAKEN) == is_taken, (message, reply)
        assert reply.is_known != is_taken
        if is_taken:
            self.counts["names taken"] += 1
            return None
        lost_s = self.now_s + 2 * self.settings.client_ttl_s
        self.nodes[message.node] = Node(
            message.node,
            message.name or message.endpoint,
            message.endpoint,
            message.domain or message.host_id,
            Memory(message.capacity_bytes),
            self.now_s,
            lost_s,
        )
        assert reply.fence == []
        return None

    def node_heartbeat(self, message, reply, there, gone):
        node = self.nodes.get(message.node)
        assert reply.is_known == (node is not None), message
        if node is None:
            return
        if node.state == SUSPECTED:
            self.counts["nodes that came back"] += 1
            node.state = self.state_of(node)
        node.seen_s = self.now_s
        node.lost_s = self.now_s + 2 * self.settings.client_ttl_s
        for peer in message.fenced:
            if peer in node.fence:
                self.counts["fences"] += 1
                self.fence_done(node, peer)
        self.orders_heard(node, message.finished)
        self.sync_copies(there, gone(there))
        self.orders_given(node, reply.orders)
        assert set(reply.fence) == node.fence, (reply.fence, node.fence)
        assert len(reply.fence) == len(node.fence)

    def disconnected(self, number):
        node = self.nodes.get(number)
        if node:
            self.counts["disconnects"] += 1
            node.state = SUSPECTED
            node.lost_s = min(node.lost_s, self.now_s + self.settings.client_ttl_s)
