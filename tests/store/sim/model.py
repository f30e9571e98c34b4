"""A dumb twin of the master: what every answer must be, in obvious Python.

Where the master is free to choose (where an object goes, who is evicted for it) the twin takes
over what it chose, and says whether it may.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.store import wire
from tests.store.sim.memory import Memory, chunk_count, extent_bytes, stripe_bytes, stripes

ONLINE, SUSPECTED, DRAINING = range(3)
STALL_S = 0.5
MAX_KEY_BYTES = 64 * 1024


@dataclass(eq=False)
class Copy:
    """One replica: (node, offset) of each stripe."""

    places: list
    is_retired: bool = False


@dataclass(eq=False)
class Group:
    name: bytes
    size: int = 0
    is_dead: bool = False
    members: set = field(default_factory=set)

    @property
    def is_complete(self):
        committed = sum(each.state == "committed" for each in self.members)
        return not self.is_dead and committed >= self.size


@dataclass(eq=False)
class Object:
    """What was put, from its start to its last reader's end."""

    key: bytes
    size: int
    part: int
    depth: int
    options: wire.PutOptions
    state: str = "writing"
    generation: int = 0
    stripes: list = field(default_factory=list)  # bytes of each
    wanted: int = 1
    pin: int = wire.NO_PIN
    soft_until_s: float = 0.0
    has_key: bool = False
    is_superseded: bool = False
    is_making_room: bool = False
    asks: int = 0
    reserved_on: set = field(default_factory=set)  # nodes where room may have been kept for it
    parent: Object | None = None
    may_be_cut_off: bool = False
    group: Group | None = None
    copies: list = field(default_factory=list)
    holds: int = 0  # leases
    fetches: int = 0  # orders that read it
    is_copied: bool = False  # the master holds it for a copy
    retries: int = 2  # left to that
    has_failed: bool = False
    may_have_failed: bool = False
    sums: bytes = b""

    def __repr__(self):
        return f"{self.key!r}@{self.generation} ({self.state})"

    @property
    def is_held(self):
        return bool(self.holds or self.fetches or self.is_copied)

    def live_copies(self, nodes):
        """Return those that are neither going nor lost."""
        return [copy for copy in self.copies if not copy.is_retired and copy.places[0][0] in nodes]

    @property
    def chunks(self):
        return chunk_count(self.size, self.part) if self.options.has_checksums else 0


@dataclass(eq=False)
class Lease:
    session: int
    is_pin: bool
    end_s: float
    objects: list
    waits_for: set = field(default_factory=set)  # nodes that have not fenced its peer


@dataclass(eq=False)
class Session:
    peer: int
    host: bytes
    seen_s: float
    puts: dict = field(default_factory=dict)
    leases: set = field(default_factory=set)
    aborted: set = field(default_factory=set)
    has_pinned: bool = False


@dataclass(eq=False)
class Node:
    node: int
    name: bytes
    endpoint: bytes
    domain: bytes
    memory: Memory
    seen_s: float
    lost_s: float
    state: int = ONLINE
    doubted_until_s: float = 0.0
    quarantine: dict = field(default_factory=dict)  # peer -> offsets
    pins: dict = field(default_factory=dict)  # peer -> leases that wait

    @property
    def fence(self):
        return set(self.quarantine) | set(self.pins)

    @property
    def quarantined(self):
        return sum(self.memory.extents[at][0] for each in self.quarantine.values() for at in each)


class Model:
    """The twin's state; `now_s` is the master's time without what it stood still."""

    def __init__(self, settings, counts):
        self.settings, self.counts = settings, counts
        self.now_s = self.stalled_s = 0.0
        self.last_s = -1.0
        self.generation = 0
        self.sessions, self.nodes, self.leases = {}, {}, {}
        self.keys, self.groups = {}, {}
        self.writing = set()
        self.held = set()  # gone, and still read
        self.fenced, self.lost_nodes, self.refused = set(), set(), set()

    @property
    def committed(self):
        return [each for each in self.keys.values() if each.state == "committed"]

    # --- time

    def advance(self, now_s):
        if self.last_s < 0:
            self.last_s = now_s
        if now_s - self.last_s > STALL_S:
            self.stalled_s += now_s - self.last_s
        self.last_s = max(self.last_s, now_s)
        self.now_s = self.last_s - self.stalled_s

    def known(self, session):
        found = self.sessions.get(session)
        if found:
            found.seen_s = self.now_s
        return found

    def tick(self):
        ttl_s = self.settings.client_ttl_s
        for session in list(self.sessions):
            if self.now_s - self.sessions[session].seen_s > ttl_s:
                self.counts["sessions expired"] += 1
                self.end_session(session)
        for node in list(self.nodes.values()):
            if self.now_s - node.seen_s > ttl_s:
                node.state = SUSPECTED
            if self.now_s > node.lost_s:
                self.lose_node(node.node)
        self.end_overdue()

    def end_overdue(self):
        for number, lease in list(self.leases.items()):
            if not lease.is_pin and lease.end_s < self.now_s:
                self.counts["leases expired"] += 1
                self.end_lease(number)
        for each in self.everything():
            if each.pin == wire.SOFT_PIN and each.soft_until_s < self.now_s:
                self.counts["soft pins ended"] += 1
                each.pin = wire.NO_PIN

    def everything(self):
        return {*self.keys.values(), *self.writing, *self.held}

    # --- objects

    def is_readable(self, each):
        if each is None or each.state != "committed":
            return False
        if each.group and not each.group.is_complete:
            return False
        return any(self.can_be_read(copy) for copy in each.copies)

    def can_be_read(self, copy):
        nodes = [self.nodes.get(node) for node, _ in copy.places]
        return not copy.is_retired and all(node and node.state != SUSPECTED for node in nodes)

    def is_whole(self, copy):
        return all(node in self.nodes for node, _ in copy.places)

    def free(self, each, copy):
        each.copies.remove(copy)
        for node, offset in copy.places:
            if node in self.nodes:
                self.nodes[node].memory.free(offset)

    def quarantine(self, each, copy, peer):
        each.copies.remove(copy)
        self.fenced.add(peer)
        for node, offset in copy.places:
            if node in self.nodes:
                self.counts["extents quarantined"] += 1
                self.nodes[node].quarantine.setdefault(peer, set()).add(offset)
                size, _ = self.nodes[node].memory.extents[offset]
                self.nodes[node].memory.extents[offset] = (size, f"quarantined for {peer}")

    def remove(self, each, heir=None):
        """Take an object's key; its space follows when nobody reads it."""
        if each.has_key:
            del self.keys[each.key]
            each.has_key = False
        was_committed = each.state == "committed"
        each.state, each.is_copied = "gone", False
        self.writing.discard(each)
        self.leave_group(each, was_committed and not (heir and heir.group is each.group))
        if each.is_held:
            self.held.add(each)
        self.sweep(each)

    def leave_group(self, each, kills):
        group = each.group
        if group is None:
            return
        each.group = None
        group.members.remove(each)
        if kills and not group.is_dead:
            self.counts["groups died"] += 1
            group.is_dead = True
            del self.groups[group.name]
            for member in [other for other in group.members if other.state == "committed"]:
                self.counts["group members died"] += 1
                self.remove(member)
        if not group.members and not group.is_dead:
            del self.groups[group.name]

    def sweep(self, each):
        """Free what nobody can read any more."""
        if each.is_held:
            return
        self.held.discard(each)
        for copy in list(each.copies):
            if each.state == "gone" or copy.is_retired:
                self.free(each, copy)

    def retire(self, each, copy):
        copy.is_retired = True
        if all(other.is_retired for other in each.copies):
            self.remove(each)
        else:
            self.sweep(each)

    # --- sessions and leases

    def end_session(self, number):
        session = self.sessions.pop(number, None)
        if session is None:
            return
        if session.puts or session.has_pinned:
            self.fenced.add(session.peer)
        for each in session.puts.values():
            for copy in list(each.copies):
                self.quarantine(each, copy, session.peer)
            self.remove(each)
        for lease in session.leases:
            self.orphan(lease, session.peer)

    def orphan(self, number, peer):
        """End a lease whose session is gone; a pin once its nodes have fenced the peer."""
        lease = self.leases[number]
        lease.session = 0
        if lease.is_pin:
            copies = [copy for each in lease.objects for copy in each.copies]
            places = [place for copy in copies for place in copy.places]
            lease.waits_for = {node for node, _ in places if node in self.nodes}
        if not lease.waits_for:
            return self.end_lease(number)
        self.counts["pins orphaned"] += 1
        for node in lease.waits_for:
            self.nodes[node].pins.setdefault(peer, set()).add(number)

    def end_lease(self, number):
        lease = self.leases.pop(number)
        if lease.session in self.sessions:
            self.sessions[lease.session].leases.discard(number)
        for each in lease.objects:
            each.holds -= 1
        for each in lease.objects:
            self.sweep(each)

    def fence_done(self, node, peer):
        for offset in node.quarantine.pop(peer, ()):
            node.memory.free(offset)
        self.pins_done(node, node.pins.pop(peer, ()))

    def pins_done(self, node, leases):
        for number in leases:
            self.leases[number].waits_for.discard(node.node)
            if not self.leases[number].waits_for:
                self.end_lease(number)

    # --- nodes

    def lose_node(self, number):
        node = self.nodes.pop(number, None)
        if node is None:
            return
        self.lost_nodes.add(number)
        self.counts["nodes lost"] += 1
        for leases in node.pins.values():
            self.pins_done(node, leases)
        for each in self.everything():
            for copy in [copy for copy in each.copies if not copy.is_retired]:
                is_hit = any(at == number for at, _ in copy.places)
                if is_hit and each.state == "committed":
                    self.retire(each, copy)

    def find_endpoint(self, endpoint):
        return [each.node for each in self.nodes.values() if each.endpoint == endpoint]

    # --- what may be placed

    def open_nodes(self):
        return [node for node in self.nodes.values() if node.state == ONLINE]

    def has_unknown_memory(self, but=None):
        """Whether the master keeps space that the twin cannot know of."""
        return any(each.is_making_room and each is not but for each in self.writing)

    def has_plenty(self, size):
        """Whether so many bytes can be put anywhere without evicting anything."""
        gaps = [max(node.memory.gaps()) for node in self.nodes.values()]
        return not self.has_unknown_memory() and min(gaps, default=0) > 2 * size + 4096

    def is_evictable(self, each):
        is_object = isinstance(each, Object) and each.state == "committed"
        return is_object and not each.is_held and self.pin_of(each) != wire.HARD_PIN

    def pin_of(self, each):
        """Return its pin, or that of any who would go with it."""
        return max(each.pin, *(mate.pin for mate in each.group.members)) if each.group else each.pin

    def domains_with(self, size, may_go):
        """Return the domains where an extent would fit if all that may go went."""
        return {node.domain for node in self.nodes_with(size, may_go)}

    def nodes_with(self, size, may_go):
        return [node for node in self.open_nodes() if max(node.memory.gaps(may_go)) >= size]

    def layout(self, item):
        return stripes(item.size_bytes, item.part_bytes, self.settings.stripe_bytes)

    def stripe_of(self, each):
        return stripe_bytes(each.size, each.part, self.settings.stripe_bytes)

    def evicted(self, each):
        self.counts["evictions"] += 1
        for child in self.everything():
            if child.parent is each:
                child.parent = None
        self.remove(each)

    def bytes_of(self, each):
        places = [place for copy in each.copies for place in copy.places]
        memories = [(self.nodes[at].memory, offset) for at, offset in places if at in self.nodes]
        return sum(memory.extents[offset][0] for memory, offset in memories)

    def claim(self, each, copies):
        """Take over where the master has put an object's copies."""
        domains = set()
        for places in copies:
            own = set()
            assert len(places) == len(each.stripes)
            for (at, offset), size in zip(places, each.stripes, strict=True):
                node = self.nodes[at]
                is_open = node.state == ONLINE or at in each.reserved_on
                assert is_open, f"{each} was put on a node that takes nothing"
                node.memory.claim(offset, extent_bytes(size), each)
                own.add(node.domain)
            assert not own & domains, f"two copies of {each} in one domain"
            domains |= own
            each.copies.append(Copy(places))
