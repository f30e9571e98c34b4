"""What the twin expects of puts."""

from __future__ import annotations

from itertools import islice

from tests.store import wire
from tests.store.sim.copies import Copies
from tests.store.sim.memory import chunk_count, extent_bytes
from tests.store.sim.model import MAX_KEY_BYTES, Group, Object

MAX_REPLICAS = 16
MOST_EXTENTS = 4096
FEW_CHUNKS, BYTES_A_CHUNK = 1024, 4096
LONGEST_PIN_S = 1e9
MOST_ASKS = 400
DOUBT_S = 2.0


class Puts(Copies):
    """A twin that knows PutStart, PutEnd and PutAbort."""

    # --- start

    def put_start(self, message, reply, there, gone):
        """Take over the answer; a listing says what is `there` after it, and what has `gone`."""
        session = self.known(message.session)
        assert reply.is_known == (session is not None)
        if session is None:
            return
        assert reply.peer_id == session.peer
        assert len(reply.items) == len(message.items)
        claims = self.claims(message, reply, session)
        if len(message.items) == 1:
            self.check_room(message, reply, session, gone)
        victims = {each.key for each in gone}
        for each in gone:
            if each.state == "committed":  # not with its group already
                self.evicted(each)
        self.sync_copies(there, set())
        places = iter(reply.places())
        for item, grant, (expected, takes_key) in zip(
            message.items, reply.items, claims, strict=True
        ):
            is_same = grant.outcome in expected
            assert is_same or item.key in victims, (item, grant.outcome, expected)
            self.put_started(message, item, grant, places, takes_key or not is_same, session)
        assert next(places, None) is None
        if not gone and any(grant.outcome == wire.OUT_OF_SPACE for grant in reply.items):
            self.check_space(reply.space)

    def put_started(self, message, item, grant, places, takes_key, session):
        self.counts[f"put start: {OUTCOMES[grant.outcome]}"] += 1
        each = session.puts.get(item.put_id)
        if each and grant.outcome == wire.OUT_OF_SPACE:
            del session.puts[item.put_id]
            return self.remove(each)
        if grant.outcome not in (wire.STARTED, wire.MAKING_ROOM):
            return None
        if each and not self.is_same(each, item):
            raise AssertionError(f"{item} was granted as {each}")
        each = each or self.begin(message, item, takes_key, session)
        if grant.outcome == wire.MAKING_ROOM:
            each.is_making_room = True
            each.asks += 1
            each.reserved_on |= {node.node for node in self.open_nodes()}
            self.evicting_went_on()
            assert each.asks < MOST_ASKS, f"{each} was put off {each.asks} times"
            return None
        self.granted(each, item, grant, places)
        return None

    def evicting_went_on(self):
        """What could not go may have been cut off from parents that have not gone yet."""
        for each in self.everything():
            could_go = self.is_evictable(each) and self.pin_of(each) == wire.NO_PIN
            each.may_be_cut_off = each.may_be_cut_off or not could_go

    def granted(self, each, item, grant, places):
        assert grant.stripe_bytes == self.stripe_of(each)
        copies = [list(islice(places, len(each.stripes))) for _ in range(grant.copies)]
        if each.generation and not each.is_making_room:
            there = [self.as_granted(copy) for copy in each.copies]
            assert (grant.generation, copies) == (each.generation, there)
            return
        assert grant.generation > 0
        assert each.generation in (0, grant.generation)
        assert 1 <= len(copies) <= each.options.replicas
        assert len(copies) == each.options.replicas or not each.options.is_strict
        each.is_making_room = False
        each.generation = grant.generation
        self.claim(each, copies)
        self.counts["striped puts"] += len(each.stripes) > 1
        self.counts["puts of more than a copy"] += len(copies) > 1

    def as_granted(self, copy):
        return [place if place[0] in self.nodes else (0, 0) for place in copy.places]

    def begin(self, message, item, takes_key, session):
        options = message.options[item.options]
        each = Object(item.key, item.size_bytes, item.part_bytes, item.depth, options)
        each.stripes, each.wanted, each.pin = self.layout(item), options.replicas, options.pin
        each.soft_until_s = self.now_s + min(options.soft_pin_us / 1e6, LONGEST_PIN_S)
        if takes_key:
            self.keys[item.key] = each
            each.has_key = True
        if item.parent:
            each.parent = self.keys.get(item.parent)
            if each.parent is each:
                each.parent = None
        if item.group:
            each.group = self.groups.setdefault(item.group, Group(item.group))
            each.group.size = max(each.group.size, item.group_size)
            each.group.members.add(each)
        self.writing.add(each)
        session.puts[item.put_id] = each
        return each

    def is_same(self, each, item):
        return (each.key, each.size, each.part) == (item.key, item.size_bytes, item.part_bytes)

    # --- what a start may be answered

    def claims(self, message, reply, session):
        """Return for each item the outcomes that would be right, and whether it takes the key."""
        taken, freed, mine, claims = set(), set(), set(), []
        for item, grant in zip(message.items, reply.items, strict=True):
            expected, takes_key = self.claim_of(message, item, session, taken, freed)
            if item.put_id in mine:
                expected = set(range(9))
            mine.add(item.put_id)
            if grant.outcome == wire.NOT_ADMITTED:
                self.refused.add(item.key)
            if grant.outcome == wire.OUT_OF_SPACE and item.put_id in session.puts:
                freed.add(item.key)  # it waited for room until now
            if takes_key and grant.outcome in (wire.STARTED, wire.MAKING_ROOM):
                taken.add(item.key)
            claims.append((expected, takes_key))
        return claims

    def claim_of(self, message, item, session, taken, freed):
        started = {wire.STARTED, wire.OUT_OF_SPACE, wire.MAKING_ROOM}
        if not self.is_valid(message, item):
            return {wire.INVALID}, False
        if item.put_id in session.aborted:
            return {wire.ABORTED}, False
        if there := session.puts.get(item.put_id):
            if not self.is_same(there, item):
                return {wire.INVALID}, False
            return (started if there.is_making_room else {wire.STARTED}), False
        options = message.options[item.options]
        there = None if item.key in freed else self.keys.get(item.key)
        takes_key = not options.is_upsert
        if not options.is_upsert:
            if item.key in taken or (there and there.state == "writing"):
                return {wire.BUSY}, False
            if there and any(self.can_be_read(copy) for copy in there.copies):
                return {wire.EXISTS}, False
            takes_key = there is None
        if self.settings.admission == "second-put" and item.key not in self.refused:
            return {wire.NOT_ADMITTED}, False
        domains = {node.domain for node in self.open_nodes()}
        if options.is_strict and len(domains) < options.replicas:
            return {wire.TOO_FEW_NODES}, False
        return started, takes_key

    def is_valid(self, message, item):
        if len(item.key) > MAX_KEY_BYTES or item.options >= len(message.options):
            return False
        options = message.options[item.options]
        is_bounded = len(self.layout(item)) * options.replicas <= MOST_EXTENTS
        most_chunks = FEW_CHUNKS + item.size_bytes // BYTES_A_CHUNK
        is_bounded &= chunk_count(item.size_bytes, item.part_bytes) <= most_chunks
        return 1 <= options.replicas <= MAX_REPLICAS and is_bounded

    # --- room

    def check_room(self, message, reply, session, gone):
        """Room is made only when it is needed, and refused only when none can be made."""
        item, grant = message.items[0], reply.items[0]
        mine = session.puts.get(item.put_id)
        if grant.outcome not in (wire.STARTED, wire.OUT_OF_SPACE, wire.MAKING_ROOM):
            assert not gone, f"{gone} went for nothing"
            return
        if self.has_unknown_memory(mine) or len(self.layout(item)) > 1:
            return
        size, copies = extent_bytes(item.size_bytes), message.options[item.options].replicas
        could = self.domains_with(size, self.is_evictable)
        if grant.outcome == wire.OUT_OF_SPACE:
            wanted = copies if message.options[item.options].is_strict else 1
            assert len(could) < wanted, f"{item}: there would be room in {could}"
            is_planned = wanted == 1 or self.settings.step_evictions >= 2000
            assert not gone or not is_planned, f"{gone} went, and the put was refused"
            return
        if mine and not mine.is_making_room:
            return
        if grant.outcome == wire.STARTED:
            assert grant.copies == min(copies, len(could)), (grant.copies, copies, could)
            if mine is None:
                self.check_doubted(size, [self.nodes[at] for at, _ in reply.places()])
        if gone:
            free = {node.domain for node in self.sure_nodes_with(size, lambda owner: False)}
            assert len(free) < copies, f"{gone} went, and {free} had room"
            self.check_victims(size, gone)

    def check_doubted(self, size, granted):
        """A doubted node takes what would fit on no other, even if others evicted for it."""
        sure = self.sure_nodes_with(size, self.is_evictable)
        for node in filter(self.is_doubted, granted):
            self.counts["puts on doubted nodes"] += 1
            others = {other.domain for other in granted if other is not node}
            assert {other.domain for other in sure} <= others, (node, sure)

    def doubt(self, each, failed):
        """Nodes that did not take what was written to them are the last resort for a while."""
        nodes = {node for copy in each.copies for node, _ in copy.places}
        for number in nodes.intersection(failed, self.nodes):
            self.counts["nodes doubted"] += 1
            self.nodes[number].doubted_until_s = self.now_s + DOUBT_S

    def sure_nodes_with(self, size, may_go):
        return [node for node in self.nodes_with(size, may_go) if not self.is_doubted(node)]

    def is_doubted(self, node):
        return node.doubted_until_s > self.now_s

    def check_victims(self, size, gone):
        """What went could go, went before its parents, and soft pins held while others could go."""
        for each in gone:
            mates = each.group.members & gone if each.group else {each}
            assert any(self.is_evictable(mate) for mate in mates), f"{each} was evicted"
            if len(mates) == 1:
                self.check_chain(each, gone)
                if self.pin_of(each) == wire.SOFT_PIN:
                    self.check_soft(size, each)

    def check_soft(self, size, each):
        nodes = [
            self.nodes[at] for copy in each.copies for at, _ in copy.places if at in self.nodes
        ]
        could = [max(node.memory.gaps(self.can_go_before_soft)) for node in nodes]
        assert min(could) < size, f"{each} is pinned; others could have gone, of {could}"

    def can_go_before_soft(self, owner):
        return self.is_evictable(owner) and self.pin_of(owner) == wire.NO_PIN

    def check_chain(self, each, gone):
        for child in self.committed:
            is_cold = child.parent is each and self.pin_of(child) == wire.NO_PIN
            is_cold = is_cold and self.is_evictable(child) and not child.may_be_cut_off
            assert not is_cold or child in gone, f"{each} went before {child}, which is behind it"

    def check_space(self, space):
        nodes = self.open_nodes()
        assert space.capacity == sum(node.memory.capacity for node in nodes)
        largest = max([0, *(max(node.memory.gaps()) for node in nodes)])
        assert space.largest_free_extent <= largest
        if not self.has_unknown_memory():
            assert space.used == sum(node.memory.used for node in nodes)
            assert space.quarantined == sum(node.quarantined for node in nodes)
            assert space.evictable == sum(self.evictable_on(node) for node in nodes)
            assert space.pinned == space.used - space.evictable - space.quarantined

    def evictable_on(self, node):
        extents = node.memory.extents.values()
        return sum(size for size, owner in extents if self.is_evictable(owner))

    # --- end and abort

    def put_end(self, message, reply):
        session = self.known(message.session)
        assert reply.is_known == (session is not None)
        if session is None:
            return
        sums = message.checksums
        for item, outcome in zip(message.items, reply.outcomes, strict=True):
            own, sums = sums[: 4 * item.checksums], sums[4 * item.checksums :]
            expected = self.end(session, item, own)
            assert outcome == expected, (item, outcome, expected)
            self.counts[f"put end: {ENDS[outcome]}"] += 1

    def end(self, session, item, sums):
        each = session.puts.get(item.put_id)
        if each is None:
            there = self.keys.get(item.key)
            is_done = there and there.generation == item.generation
            is_done = is_done and there.state == "committed"
            return wire.DONE if is_done else wire.UNKNOWN
        is_same = (each.key, each.generation) == (item.key, item.generation)
        if not is_same or each.is_making_room or len(sums) != 4 * each.chunks:
            return wire.END_INVALID
        each.sums = sums
        del session.puts[item.put_id]
        self.doubt(each, item.failed)
        for at, copy in reversed(list(enumerate(each.copies))):
            if at in item.lost or not self.is_whole(copy):
                self.drop(each, copy, item.dirty, session.peer)
        return self.land(each)

    def drop(self, each, copy, dirty, peer):
        if any(node in dirty and node in self.nodes for node, _ in copy.places):
            self.quarantine(each, copy, peer)
        else:
            self.free(each, copy)

    def land(self, each):
        there = self.keys.get(each.key)
        has_group_gone = each.group is not None and each.group.is_dead
        if not each.copies or has_group_gone:
            self.remove(each)
            return wire.GROUP_GONE if has_group_gone else wire.UNKNOWN
        is_late = not each.has_key and not each.options.is_upsert and self.is_readable(there)
        if each.is_superseded or is_late:
            self.remove(each)
            return wire.SUPERSEDED
        if not each.has_key:
            self.replace(there, each)
        self.writing.discard(each)
        each.state = "committed"
        self.counts["commits"] += 1
        return wire.DONE

    def replace(self, there, each):
        if there and there.state == "committed":
            if there.parent is each.parent:
                for child in self.everything():
                    if child.parent is there:
                        child.parent = each
            self.counts["objects replaced"] += 1
            self.remove(there, heir=each)
        elif there:
            there.has_key, there.is_superseded = False, True
        self.keys[each.key] = each
        each.has_key = True

    def put_abort(self, message, reply):
        session = self.known(message.session)
        assert reply.is_known == (session is not None)
        if session is None:
            return
        for item, outcome in zip(message.items, reply.outcomes, strict=True):
            each = session.puts.pop(item.put_id, None)
            assert outcome == (wire.DONE if each else wire.UNKNOWN)
            if each is None:
                session.aborted.add(item.put_id)
                continue
            self.counts["aborts"] += 1
            self.doubt(each, item.failed)
            for copy in list(each.copies):
                if any(node in item.dirty and node in self.nodes for node, _ in copy.places):
                    self.quarantine(each, copy, session.peer)
            self.remove(each)


OUTCOMES = (
    "started",
    "exists",
    "busy",
    "out of space",
    "aborted",
    "invalid",
    "making room",
    "not admitted",
    "too few nodes",
)
ENDS = ("done", "unknown", "invalid", "superseded", "group gone")
