"""What the twin knows of copies that are made in the background.

When and where to copy is the master's choice. The twin sees the orders that nodes are given, keeps
their targets and sources for nobody else, and takes over what comes of them from a listing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.store import wire
from tests.store.sim.memory import chunk_count, extent_bytes
from tests.store.sim.model import DRAINING, ONLINE, SUSPECTED, Copy, Model, Object


@dataclass(eq=False)
class Order:
    """One stripe that a node was told to fetch."""

    number: int
    node: int
    offset: int
    stripe: int
    of: object
    is_claimed: bool = True  # its space is nobody else's

    @property
    def place(self):
        return self.node, self.offset

    def __repr__(self):
        return f"order {self.number} of {self.of}"


@dataclass(eq=False)
class Task:
    """A copy, a move or a drain that was asked for."""

    kind: int
    key: bytes
    source: bytes
    state: int = wire.RUNNING
    generation: int = 0
    node: int = 0  # that drains


@dataclass(eq=False)
class Background:
    """What goes on."""

    orders: dict = field(default_factory=dict)  # that a node may be carrying out, by number
    landed: list = field(default_factory=list)  # reported, and not yet part of a copy
    tasks: dict = field(default_factory=dict)
    is_busy: bool = False  # the master has orders
    may_evict: bool = False  # something may have been short of room


class Copies(Model):
    """A Model that knows orders and tasks."""

    def __init__(self, settings, counts, look):
        """`look` tells of a key where its copies are now."""
        super().__init__(settings, counts)
        self.look = look
        self.background = Background()

    def has_unknown_memory(self, but=None):
        return self.background.is_busy or super().has_unknown_memory(but)

    # --- orders

    def orders_heard(self, node, finished):
        """Take over what a node reports."""
        for result in finished:
            order = self.background.orders.get(result.order)
            if order is None or order.node != node.node:
                continue
            del self.background.orders[result.order]
            self.counts["stripes fetched" if result.is_done else "fetches failed"] += 1
            if result.is_done:
                self.background.landed.append(order)
            else:
                node.memory.free(order.offset)
                order.of.retries -= 1
            is_lost = order.of.retries < 0 or (result.corrupt and not result.is_done)
            order.of.has_failed = order.of.has_failed or bool(is_lost)
            for source in result.corrupt:
                self.blame(order.of, source)
            self.let_go(order.of)

    def let_go(self, each):
        each.fetches -= 1
        if each.may_have_failed:
            self.doubt_landed(each)
        is_whole = self.is_landed(each)
        if each.fetches == 0 and each.has_failed:
            for order in self.landed_of(each).values():
                self.forget(order)
        if each.fetches == 0 and (each.has_failed or each.may_have_failed) and not is_whole:
            self.loosen(each)
        self.sweep(each)

    def loosen(self, each):
        """Its copy has come to nothing, or may have, and another may begin at once."""
        self.doubt_landed(each)
        each.is_copied = each.has_failed = each.may_have_failed = False
        each.retries = 2
        self.sweep(each)

    def loosen_all(self):
        """Any copy may have ended."""
        for each in self.everything():
            each.may_have_failed = each.is_copied
            self.doubt_landed(each)
            if each.is_copied and not each.fetches:
                self.loosen(each)

    def doubt_landed(self, each):
        """What was fetched for it may be used otherwise by now, or may become a copy yet."""
        for order in self.landed_of(each).values():
            self.unclaim(order)

    def unclaim(self, order):
        if order.is_claimed and order.node in self.nodes:
            self.nodes[order.node].memory.free(order.offset)
        order.is_claimed = False

    def blame(self, each, source):
        for copy in list(each.copies):
            is_hit = any(node == source for node, _ in copy.places) and source in self.nodes
            if is_hit and each.state == "committed" and not copy.is_retired:
                self.counts["corrupt sources"] += 1
                self.retire(each, copy)

    def orders_given(self, node, orders):
        """Check what a node is told to fetch, and keep its target for it."""
        told = {order.order for order in orders}
        known = {each.number for each in self.background.orders.values() if each.node == node.node}
        assert known <= told, f"node {node.node} is not told again of {known - told}"
        for order in orders:
            known = self.background.orders.get(order.order)
            if known:
                assert (known.node, known.offset) == (node.node, order.offset)
                if known.stripe is None:
                    known.stripe = self.check_order(known.of, order)
                continue
            self.new_order(node, order)

    def new_order(self, node, order):
        each = self.of_generation(order.generation)
        if each is None:  # gone before it could be told
            each = Object(b"", 0, 0, 0, wire.PutOptions(), state="gone")
        at = self.check_order(each, order)
        landed = self.landed_of(each)
        if at in landed:
            self.next_begins(each)
        if at in landed and not landed[at].is_claimed:  # that copy has come to nothing
            for before in landed.values():
                self.forget(before)
        fresh = Order(order.order, node.node, order.offset, at, each)
        node.memory.claim(order.offset, extent_bytes(order.size_bytes), fresh)
        self.background.orders[order.order] = fresh
        each.fetches += 1

    def next_begins(self, each):
        """The copy before it has ended, after which nothing held the object for a moment."""
        is_copied, each.is_copied = each.is_copied, False
        self.sweep(each)
        each.is_copied = is_copied

    def of_generation(self, generation):
        return next((each for each in self.everything() if each.generation == generation), None)

    def check_order(self, each, order):
        """An order names sources of one stripe, its bytes and its checksums; return the stripe."""
        if each.state == "gone" or not order.sources:
            return None
        copies = [copy for copy in each.copies if not copy.is_retired]
        places = {place: at for copy in copies for at, place in enumerate(copy.places)}
        stripes = {places[source] for source in wire.sources(order)}
        assert all(self.nodes[node].state != SUSPECTED for node, _ in wire.sources(order))
        (at,) = stripes
        assert order.size_bytes == each.stripes[at]
        assert order.part_bytes == each.part
        if each.options.has_checksums:
            first = at * chunk_count(each.stripes[0], each.part)
            last = first + chunk_count(each.stripes[at], each.part)
            assert order.checksums == each.sums[4 * first : 4 * last]
        return at

    # --- what came of them

    def sync_copies(self, there, gone):
        """Take over from a listing which copies have come and gone in the background."""
        self.evicted_for_copies(there, gone)
        for each in self.committed:
            if each.key in there and there[each.key][0].generation == each.generation:
                info, names = there[each.key]
                is_copied = info.leases - each.holds
                assert is_copied in (0, 1), (each, info)
                each.is_copied = bool(is_copied)
                self.sync_object(each, set(names))
                self.sweep(each)
        for order in list(self.background.landed):
            if order.of.state != "committed" or not order.of.is_copied:
                self.forget(order)
                self.loosen(order.of)

    def evicted_for_copies(self, there, gone):
        """Copies that were asked for, or are to replace lost ones, may evict as puts do."""
        short = any(
            len(each.live_copies(self.nodes)) < each.wanted
            or (each.key in there and len(there[each.key][1]) < each.wanted)
            for each in self.committed
        )
        tasks = any(task.kind != wire.DRAIN for task in self.background.tasks.values())
        assert not gone or short or tasks or self.background.may_evict, f"{gone} went for nothing"
        self.background.may_evict = short
        for each in gone:
            if self.is_landed(each):  # it was not copied any more
                each.is_copied = False
        for each in gone:
            mates = each.group.members & gone if each.group else {each}
            assert any(self.is_evictable(mate) for mate in mates), f"{each} was evicted"
        for each in gone:
            if each.state == "committed":
                self.counts["evictions for copies"] += 1
                self.evicted(each)

    def sync_object(self, each, names):
        if len(each.stripes) > 1:
            self.sync_striped(each)
        known = {self.nodes[copy.places[0][0]].name: copy for copy in each.live_copies(self.nodes)}
        for name in names - set(known):
            self.attach(each, name)
        for name in set(known) - names:
            self.moved(each, known[name])
        domains = [
            {self.nodes[node].domain for node, _ in copy.places if node in self.nodes}
            for copy in each.copies
            if not copy.is_retired
        ]
        assert sum(map(len, domains)) == len(set().union(*domains)), f"{each}: {domains}"

    def sync_striped(self, each):
        """A listing says where copies begin, which a copy and the one before it may share."""
        by_stripe = self.landed_of(each)
        if not self.is_landed(each) or not self.is_readable(each):
            return
        seen = self.look(each.key)
        before = [copy for copy in each.copies if self.can_be_read(copy)]
        if [by_stripe[at].place for at in range(len(each.stripes))] not in seen:
            return
        self.attach(each)
        for copy in before:
            if copy.places not in seen:
                self.moved(each, copy)

    def landed_of(self, each):
        return {order.stripe: order for order in self.background.landed if order.of is each}

    def is_landed(self, each):
        return len(self.landed_of(each)) == len(each.stripes)

    def attach(self, each, name=None):
        """A new copy is where its orders were, all of which have been reported."""
        by_stripe = self.landed_of(each)
        places = [by_stripe[at].place for at in range(len(each.stripes))]
        assert name in (None, self.nodes[places[0][0]].name), (each, name, places)
        for at, size in enumerate(each.stripes):
            self.unclaim(by_stripe[at])
            node, offset = places[at]
            self.nodes[node].memory.claim(offset, extent_bytes(size), each)
        self.background.landed = [
            order for order in self.background.landed if order not in by_stripe.values()
        ]
        each.copies.append(Copy(places))
        self.counts["copies made"] += 1
        is_copied = each.is_copied
        self.loosen(each)
        each.is_copied = is_copied

    def moved(self, each, copy):
        """A copy has gone, whether or not another is begun already."""
        self.check_retired(each, copy)
        self.counts["copies moved or dropped"] += 1
        is_copied, each.is_copied = each.is_copied, False
        self.retire(each, copy)
        each.is_copied = is_copied

    def check_retired(self, each, copy):
        """A copy goes for a drain or a move, or if it is more than was asked for."""
        nodes = {node for node, _ in copy.places}
        tasks = self.background.tasks.values()
        is_drained = any(task.node in nodes for task in tasks)
        names = {self.nodes[node].name for node in nodes if node in self.nodes}
        is_moved = any(
            task.kind == wire.MOVE and task.generation == each.generation and task.source in names
            for task in tasks
        )
        live = sum(not other.is_retired for other in each.copies)
        is_extra = self.settings.hot_gets_per_s > 0 and live > 1
        assert is_drained or is_moved or is_extra, f"{each} lost its copy on {names}"
        assert live > 1, f"{each} lost its last copy"

    def forget(self, order):
        self.background.landed.remove(order)
        self.unclaim(order)

    def lose_node(self, number):
        for order in [each for each in self.background.orders.values() if each.node == number]:
            del self.background.orders[order.number]
            self.let_go(order.of)
        super().lose_node(number)
        self.loosen_all()

    # --- tasks

    def task_created(self, message, reply):
        named = [node for node in self.nodes.values() if node.name == message.source]
        there = self.keys.get(message.key)
        is_there = there is not None and there.state == "committed"
        if message.kind == wire.UNDRAIN:
            self.undrained(named, reply)
            return
        if message.kind == wire.DRAIN:
            assert bool(reply.task) == bool(named), reply
        elif not is_there:
            assert reply.task == 0
        assert bool(reply.task) != bool(reply.problem)
        if not reply.task:
            self.counts["tasks refused"] += 1
            return
        self.counts["tasks"] += 1
        task = Task(message.kind, message.key, message.source)
        if message.kind == wire.DRAIN:
            task.node = named[0].node
        else:
            task.generation = there.generation
        self.background.tasks.setdefault(reply.task, task)

    def draining(self):
        return {task.node for task in self.background.tasks.values() if task.node in self.nodes}

    def undrained(self, named, reply):
        """The drain that was named is over, and its node takes objects again."""
        drains = {
            number: task
            for number, task in self.background.tasks.items()
            if task.kind == wire.DRAIN
        }
        drained = [
            number for number, task in drains.items() if task.node in {node.node for node in named}
        ]
        assert [reply.task] == (drained or [0]), (reply, drained)
        assert bool(reply.task) != bool(reply.problem)
        for number in drained:
            self.counts["drains undone"] += 1
            drains[number].node *= -1
            self.loosen_all()

    def sync_tasks(self, infos):
        """Take over how tasks stand; a drain that is done has left nothing."""
        for info in infos:
            task = self.background.tasks[info.task]
            if task.state == info.state:
                continue
            task.state = info.state
            self.counts[f"tasks of kind {task.kind}: {STATES[info.state]}"] += 1
            assert info.state != wire.TASK_FAILED or info.problem, info
            if info.kind == wire.DRAIN and info.state == wire.TASK_DONE:
                node = self.nodes.get(task.node)
                assert node is None or node.memory.used == 0, node.memory.extents
            if info.kind == wire.DRAIN and info.state in (wire.TASK_FAILED, wire.TASK_CANCELLED):
                task.node = -abs(task.node)  # it drains no more
        for node in self.nodes.values():
            if node.state != SUSPECTED:
                node.state = self.state_of(node)

    def state_of(self, node):
        """Return the state of a node that is heard of."""
        drained = any(task.node == node.node for task in self.background.tasks.values())
        return DRAINING if drained else ONLINE


STATES = ("running", "done", "failed", "cancelled")
