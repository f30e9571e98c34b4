"""Copies that are made in the background: copy, move, drain, repair and heat, of the core alone."""

from __future__ import annotations

import random

import pytest

from tests.store import wire
from tests.store.site import CHUNK, Site


def names_of(count):
    return [b"k%d" % at for at in range(count)]


# --- copy and move


def test_a_copy_task_makes_a_copy_where_it_is_told():
    site = Site("a", "b", "c")
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.COPY, b"k", targets=["c"])
    assert (created.problem, site.task(created.task).state) == (b"", wire.RUNNING)
    site.settle()
    assert site.homes(b"k") == ["a", "c"]
    info = site.task(created.task)
    assert (info.state, info.done_objects, info.total_objects) == (wire.TASK_DONE, 1, 1)
    assert info.done_bytes == info.total_bytes == 1000
    assert site.stats().counters.asked_copies == 1
    assert site.stats().tasks == site.stats().copy_orders == 0


def test_an_object_of_stripes_is_copied_stripe_by_stripe():
    site = Site("a", "b", stripe_bytes=CHUNK, capacity=4 << 20)
    site.put(b"k", size=CHUNK * 2 + 5, preferred=[b"a"])
    created = site.create(wire.COPY, b"k")
    site.tick()
    orders = site.beat("b").orders
    assert [order.size_bytes for order in orders.values()] == [CHUNK, CHUNK, 5]
    assert [len(order.checksums) for order in orders.values()] == [4, 4, 4]
    site.settle()
    assert site.task(created.task).state == wire.TASK_DONE
    assert site.homes(b"k") == ["a", "b"]


def test_a_copy_to_several_nodes_counts_each():
    site = Site("a", "b", "c")
    site.put(b"k", preferred=[b"b"])
    created = site.create(wire.COPY, b"k", targets=["a", "c"])
    site.settle()
    assert site.homes(b"k") == ["a", "b", "c"]
    assert site.task(created.task).done_objects == 2


def test_a_copy_that_was_asked_for_is_not_the_first_to_be_evicted():
    site = Site("a", "b", capacity=64 << 10)
    site.put(b"old", size=10_000, preferred=[b"a"])
    site.put(b"copied", size=10_000, preferred=[b"a"])
    site.create(wire.COPY, b"copied", targets=["b"])
    site.settle()
    for key in names_of(10):
        site.put(key, size=10_000)
    assert site.homes(b"old") == [], "what was used before goes first"
    assert site.homes(b"copied") == ["a", "b"]


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ((wire.COPY, b"none"), b"there is no such object"),
        ((wire.COPY, b"k", "", ["x"]), b"no node is called 'x'"),
        ((wire.MOVE, b"k", "x"), b"no node is called 'x'"),
        ((wire.MOVE, b"k", "b"), b"node 'b' has no copy of it"),
        ((wire.MOVE, b"k", "a", ["b", "c"]), b"a move has one target"),
        ((wire.DRAIN, b"", "x"), b"no node is called 'x'"),
        (
            (7, b"k"),
            b"a task of kind 7 is not known; it is 0 (copy), 1 (move), 2 (drain) or 3 (undrain)",
        ),
    ],
)
def test_a_task_that_makes_no_sense_is_refused_with_the_reason(question, problem):
    site = Site("a", "b", "c")
    site.put(b"k", preferred=[b"a"])
    created = site.create(*question)
    assert (created.task, created.problem) == (0, problem)


def test_a_copy_into_a_domain_that_has_one_fails_with_the_reason():
    site = Site("a")
    site.add_node("twin", domain="a")
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.COPY, b"k", targets=["twin"])
    site.settle()
    info = site.task(created.task)
    assert info.state == wire.TASK_FAILED
    assert b"domain without a copy" in info.problem
    moved = site.create(wire.MOVE, b"k", "a", ["twin"])
    site.settle()
    assert site.task(moved.task).state == wire.TASK_DONE
    assert site.homes(b"k") == ["twin"]


def test_a_move_serves_readers_of_before_and_frees_its_space_after_them():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    reader = site.lookup(b"k")
    created = site.create(wire.MOVE, b"k", "a", ["b"])
    site.settle()
    assert site.task(created.task).state == wire.TASK_DONE
    assert site.homes(b"k") == ["b"], "new readers are sent to the new place"
    assert site.used("a") > 0, "the reader of before is still there"
    site.release(reader)
    assert site.used("a") == 0
    assert site.homes(b"k") == ["b"]
    assert site.stats().counters.moved_copies == 1


def test_what_is_removed_while_it_is_copied_frees_no_space_that_a_node_still_writes():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.COPY, b"k")
    site.tick()
    node = site.beat("b")
    [order] = node.orders.values()
    site.core.call(wire.REMOVE, wire.Keys([b"k"]), wire.Flags, site.now)
    site.tick()
    assert site.used("b") > 0 and site.homes(b"k") == []
    site.carry_out(node, order)
    site.beat("b")
    assert site.used("a") == site.used("b") == 0
    info = site.task(created.task)
    assert (info.state, info.problem) == (wire.TASK_FAILED, b"the object is gone")


def test_results_that_come_twice_late_or_from_another_node_change_nothing():
    site = Site("a", "b", "c")
    site.put(b"k", preferred=[b"a"])
    site.create(wire.COPY, b"k", targets=["b"])
    site.tick()
    [order] = site.beat("b").orders
    lie = wire.CopyResult(order, True)
    site.step(wire.NodeHeartbeat(site.nodes["c"].number, [], [lie]))
    assert site.homes(b"k") == ["a"]
    site.settle()
    assert site.homes(b"k") == ["a", "b"]
    for result in (lie, wire.CopyResult(order, False), wire.CopyResult(order + 99, True)):
        site.step(wire.NodeHeartbeat(site.nodes["b"].number, [], [result]))
    assert site.homes(b"k") == ["a", "b"]
    assert site.stats().counters.asked_copies == 1


def test_an_order_that_fails_is_tried_again_and_then_given_up():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.COPY, b"k")
    tries = 0
    for _ in range(10):
        site.tick()
        node = site.beat("b")
        for order in list(node.orders.values()):
            site.carry_out(node, order, is_good=False)
            tries += 1
    assert tries == 3
    info = site.task(created.task)
    assert (info.state, info.problem) == (wire.TASK_FAILED, b"its node could not fetch it")
    assert site.used("b") == 0
    assert site.stats().counters.failed_copies == 1


def test_a_task_whose_target_is_lost_ends_with_the_reason_and_no_space_is():
    site = Site("a", "b", stripe_bytes=CHUNK, capacity=4 << 20)
    site.put(b"k", size=3 * CHUNK, preferred=[b"a"])
    created = site.create(wire.COPY, b"k", targets=["b"])
    site.tick()
    node = site.beat("b")
    site.carry_out(node, next(iter(node.orders.values())))
    site.beat("b")
    site.lose("b")
    info = site.task(created.task)
    assert (info.state, info.problem) == (wire.TASK_FAILED, b"node 'b' was lost")
    site.settle()
    assert site.homes(b"k") == ["a"]
    site.add_node("b", 4 << 20)
    again = site.create(wire.COPY, b"k", targets=["b"])
    site.settle()
    assert site.task(again.task).state == wire.TASK_DONE


def test_a_copy_whose_only_source_is_corrupt_ends_as_a_miss():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    site.corrupt(b"k", "a")
    created = site.create(wire.COPY, b"k")
    site.settle()
    assert site.task(created.task).state == wire.TASK_FAILED
    assert site.homes(b"k") == []
    assert site.used("a") == site.used("b") == 0
    assert site.stats().counters.corrupt == 1


def test_a_task_that_was_cancelled_makes_nothing():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    sent = site.create(wire.COPY, b"k")
    site.tick()
    node = site.beat("b")
    assert site.task(sent.task, is_cancel=True).state == wire.TASK_CANCELLED
    assert site.used("b") > 0, "its node may still write there"
    for order in list(node.orders.values()):
        site.carry_out(node, order)
    site.beat("b")
    assert site.used("b") == 0
    assert site.homes(b"k") == ["a"]
    assert site.task(sent.task, is_cancel=True).state == wire.TASK_CANCELLED


def test_only_the_last_tasks_are_remembered():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    tasks = [site.create(wire.COPY, b"k") for _ in range(1)]
    site.settle()
    for _ in range(1100):
        tasks.append(site.create(wire.MOVE, b"k", "a", ["b"]))
        site.core.step(wire.TaskQuery([tasks[-1].task], True), site.now)
    known = site.step(wire.TaskQuery()).tasks
    assert len(known) == 1000
    assert known[-1].task == tasks[-1].task


# --- drain


def test_a_drain_empties_a_node_and_loses_nothing():
    site = Site("a", "b", "c")
    keys = names_of(120)
    for key in keys:
        site.put(key, size=2000)
    before = site.used("a")
    assert before > 0
    created = site.create(wire.DRAIN, source="a")
    assert site.create(wire.DRAIN, source="a").task == created.task, "it drains already"
    assert site.state("a") == 2
    site.put(b"new", preferred=[b"a"])
    assert site.homes(b"new") != ["a"]
    site.settle(5)
    info = site.task(created.task)
    assert (info.state, info.problem) == (wire.TASK_DONE, b"")
    assert info.done_bytes == info.total_bytes == before
    assert info.done_objects == info.total_objects == 40
    assert site.used("a") == 0
    assert all(site.homes(key) and site.homes(key) != ["a"] for key in keys)
    assert site.stats().counters.evictions == 0
    assert site.state("a") == 2, "it takes nothing until it is started again"
    site.lose("a")
    assert all(site.homes(key) for key in keys)


def test_what_has_no_room_elsewhere_stays_and_the_task_says_how_much():
    site = Site("a", "b", capacity=64 << 10)
    for at in range(6):
        site.put(b"a%d" % at, size=10_000 - 64, preferred=[b"a"])
    for at in range(4):
        site.put(b"b%d" % at, size=10_000 - 64, preferred=[b"b"])
    created = site.create(wire.DRAIN, source="a")
    site.settle(3)
    info = site.task(created.task)
    assert info.state == wire.TASK_FAILED
    assert info.problem == b"4 objects of 40192 bytes have no room on other nodes"
    assert site.stats().counters.evictions == 0
    assert sum(site.homes(b"a%d" % at) == ["b"] for at in range(6)) == 2
    assert all(site.homes(b"a%d" % at) for at in range(6))
    assert site.state("a") == 0


def test_a_drain_counts_an_object_in_stripes_once():
    site = Site("a", "b", stripe_bytes=CHUNK, capacity=1 << 20)
    site.put(b"full", size=3 * CHUNK, preferred=[b"b"])
    site.put(b"k", size=3 * CHUNK, preferred=[b"a"])
    created = site.create(wire.DRAIN, source="a")
    used = site.used("a")
    site.settle(3)
    info = site.task(created.task)
    assert info.state == wire.TASK_FAILED
    assert info.problem == b"1 objects of %d bytes have no room on other nodes" % used


def test_a_drain_waits_for_readers_and_writers():
    site = Site("a", "b")
    site.put(b"read", preferred=[b"a"])
    reader = site.lookup(b"read")
    item = wire.PutItem(1, b"written", 100)
    started = site.step(wire.put_start(site.session, item, preferred=[b"a"]))
    created = site.create(wire.DRAIN, source="a")
    site.settle(1)
    info = site.task(created.task)
    assert info.state == wire.RUNNING
    assert b"bytes are being moved, read, written or fenced" in info.problem
    site.release(reader)
    [(number, offset)] = started.places()
    generation = started.items[0].generation
    site.by_number(number).memory[offset] = (b"written", generation, 0, False)
    end = wire.EndItem(1, b"written", generation)
    site.step(wire.PutEnd(site.session, [end], b"crc!"))
    site.settle(2)
    assert site.task(created.task).state == wire.TASK_DONE
    assert site.homes(b"read") == site.homes(b"written") == ["b"]


def test_a_drain_leaves_what_has_another_copy_with_one_less():
    site = Site("a", "b")
    site.put(b"k", replicas=2)
    created = site.create(wire.DRAIN, source="a")
    site.settle(2)
    assert site.task(created.task).state == wire.TASK_DONE
    assert site.homes(b"k") == ["b"]
    site.add_node("c")
    site.settle(1)
    assert site.homes(b"k") == ["b", "c"]


def test_a_drain_that_is_cancelled_lets_the_node_take_objects_again():
    site = Site("a", "b", capacity=64 << 10)
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.DRAIN, source="a")
    site.task(created.task, is_cancel=True)
    assert site.state("a") == 0
    site.settle()
    site.put(b"more", preferred=[b"a"])
    assert site.homes(b"more") == ["a"]


def test_a_node_that_is_lost_while_it_drains_ends_its_task():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    created = site.create(wire.DRAIN, source="a")
    site.lose("a")
    info = site.task(created.task)
    assert (info.state, info.problem) == (
        wire.TASK_FAILED,
        b"the node was lost before it was empty",
    )
    site.settle()
    assert site.used("b") == 0


def test_a_node_that_was_silent_goes_on_draining():
    site = Site("a", "b")
    created = site.create(wire.DRAIN, source="a")
    site.core.native.node_disconnected(site.nodes["a"].number, site.now)
    assert site.state("a") == 1
    site.beat("a")
    assert site.state("a") == 2
    site.settle()
    assert site.task(created.task).state == wire.TASK_DONE


# --- repair


def test_copies_of_a_lost_node_are_restored_on_a_third():
    site = Site("a", "b", "c")
    keys = names_of(50)
    for key in keys:
        site.put(key, replicas=2)
    site.lose("a")
    site.settle(3)
    assert all(site.homes(key) == ["b", "c"] for key in keys)
    counters = site.stats().counters
    assert counters.repaired_copies > 0 and counters.failed_copies == 0


def test_copies_are_restored_when_a_node_comes():
    site = Site("a", "b")
    site.put(b"k", replicas=3)
    site.lose("a")
    site.settle(1)
    assert site.homes(b"k") == ["b"]
    site.add_node("c")
    site.add_node("d")
    site.settle(2)
    assert site.homes(b"k") == ["b", "c", "d"], "as many as the put asked for"


def test_a_corrupt_copy_is_replaced_from_another():
    site = Site("a", "b", "c")
    grant = site.put(b"k", replicas=2, preferred=[b"a", b"b"])
    site.corrupt(b"k", "a")
    site.step(wire.Corrupt(b"k", grant.generation, site.nodes["a"].number))
    assert site.homes(b"k") == ["b"]
    site.settle()
    assert len(site.homes(b"k")) == 2
    assert site.stats().counters.repaired_copies == 1


def test_a_corrupt_source_is_found_while_a_copy_is_restored():
    site = Site("a", "b", "c", "d")
    site.put(b"k", replicas=3, preferred=[b"a", b"b", b"c"])
    site.corrupt(b"k", "a")
    site.lose("b")
    site.settle(3)
    assert len(site.homes(b"k")) == 3 or site.homes(b"k") == ["c", "d"]
    site.add_node("e")
    site.settle(3)
    assert len(site.homes(b"k")) == 3
    assert site.stats().counters.corrupt == 1


def test_repair_makes_room_as_a_put_would():
    site = Site("a", "b", "c", capacity=64 << 10)
    site.put(b"precious", size=30_000, replicas=2, preferred=[b"a", b"b"])
    for key in names_of(3):
        site.put(key, size=20_000, preferred=[b"c"])
    site.lose("a")
    site.settle(2)
    assert site.homes(b"precious") == ["b", "c"]
    assert site.stats().counters.evictions > 0


# --- heat


def heated(size=1000, **options):
    site = Site("a", "b", "c", hot_gets_per_s=20, hot_replicas=2, heat_half_life_s=1, **options)
    site.put(b"hot", size, preferred=[b"a"])
    site.put(b"cold", preferred=[b"a"])
    return site


def look_up_often(site, key, times=100):
    for _ in range(times):
        site.release(site.lookup(key))


def test_a_hot_object_gets_another_copy_and_loses_it_when_it_has_cooled_down():
    site = heated()
    look_up_often(site, b"hot")
    site.settle(0.5)
    assert len(site.homes(b"hot")) == 2
    assert site.homes(b"cold") == ["a"]
    assert (site.stats().hot_objects, site.stats().counters.hot_copies) == (1, 1)
    site.settle(4)
    assert site.homes(b"hot") == ["a"]
    assert site.stats().hot_objects == 0


def test_a_hot_copy_evicts_nothing_and_is_evicted_first():
    site = heated(size=10_000, capacity=128 << 10)
    look_up_often(site, b"hot")
    site.settle(0.5)
    assert len(site.homes(b"hot")) == 2
    for at in range(60):
        if len(site.homes(b"hot")) == 1:
            break
        site.put(b"k%d" % at, size=10_000)
    assert site.homes(b"hot") == ["a"]
    assert site.stats().counters.evictions == 0, "the hot copy went before all others"
    look_up_often(site, b"hot")
    site.settle(0.5)
    assert site.homes(b"hot") == ["a"]
    assert site.stats().counters.evictions == 0


def test_hot_copies_are_at_most_a_tenth_of_the_pool():
    site = heated(capacity=100_000)
    keys = names_of(10)
    for key in keys:
        site.put(key, size=9000)
        look_up_often(site, key)
    site.settle(0.8)
    assert sum(len(site.homes(key)) == 2 for key in keys) == 3
    assert site.stats().counters.hot_copies <= 3


def test_hot_objects_that_are_gone_take_nothing_of_that_tenth():
    site = heated(size=9000, capacity=100_000)
    for _ in range(10):
        look_up_often(site, b"hot")
        site.settle(0.3)
        assert len(site.homes(b"hot")) == 2
        site.core.call(wire.REMOVE, wire.Keys([b"hot"]), wire.Flags, site.now)
        site.put(b"hot", 9000, preferred=[b"a"])


# --- all at once


class Storm:
    """Nodes that crash, do half, repeat themselves and come late, under all kinds of tasks."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.site = Site(
            *(f"n{at}" for at in range(4)),
            capacity=256 << 10,
            stripe_bytes=self.rng.choice([64 << 20, CHUNK]),
            hot_gets_per_s=self.rng.choice([0, 5]),
            heat_half_life_s=1,
            placement=self.rng.choice(["free-ratio-first", "round-robin", "random"]),
        )
        self.fresh, self.late = 4, []

    def node(self):
        return self.rng.choice(list(self.site.nodes))

    def key(self):
        return b"k%d" % self.rng.randrange(25)

    def beat(self):
        node = self.site.beat(self.node())
        for order in list(node.orders.values()):
            if self.rng.random() < 0.7:
                self.site.carry_out(node, order, is_good=self.rng.random() < 0.9)
                self.late.append((node.number, node.finished[order.order]))

    def repeat(self):
        if self.late:
            number, result = self.rng.choice(self.late[-20:])
            if self.site.by_number(number) and result.order in self.site.by_number(number).finished:
                self.site.step(wire.NodeHeartbeat(number, [], [result]))

    def create(self):
        kind = self.rng.choice([wire.COPY, wire.MOVE, wire.DRAIN])
        targets = [self.node()] if self.rng.random() < 0.5 and kind != wire.DRAIN else []
        self.site.create(kind, self.key(), self.node(), targets)

    def put(self):
        size = self.rng.choice([0, 10, 5000, 40_000])
        self.site.put(self.key(), size, replicas=self.rng.choice([1, 2, 3]))

    def remove(self):
        self.site.core.call(wire.REMOVE, wire.Keys([self.key()]), wire.Flags, self.site.now)

    def corrupt(self):
        self.site.corrupt(self.key(), self.node())

    def replace_node(self):
        if self.rng.random() < 0.2:
            self.site.lose(self.node())
            self.site.add_node(f"n{self.fresh}", 256 << 10)
            self.fresh += 1

    def cancel(self):
        tasks = self.site.step(wire.TaskQuery()).tasks
        if tasks:
            self.site.task(self.rng.choice(tasks).task, is_cancel=True)

    def look(self):
        key = self.key()
        reply = self.site.lookup(key)
        if self.rng.random() < 0.5 and reply.lease:
            self.site.release(reply)

    def run(self, steps):
        actions = [self.put] * 4 + [self.beat] * 8 + [self.look] * 4 + [self.repeat] * 2
        actions += [self.create] * 2 + [self.remove, self.replace_node, self.cancel]
        for _ in range(steps):
            self.rng.choice(actions)()
            if self.rng.random() < 0.3:
                self.site.tick()
        self.site.settle(20)
        stats = self.site.stats()
        assert stats.copy_orders == 0
        assert stats.leases == 0
        for at in range(25):
            self.site.homes(b"k%d" % at)
            self.site.core.call(wire.REMOVE, wire.Keys([b"k%d" % at]), wire.Flags, self.site.now)
        self.site.settle(1)
        assert self.site.stats().space.used == 0, "not a byte is lost"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_nodes_do_no_byte_is_foreign_and_no_space_is_lost(seed):
    Storm(seed).run(300)


def test_the_task_that_has_drained_a_node_is_known_for_as_long_as_the_node_takes_nothing():
    site = Site("a", "b")
    site.put(b"k")
    drained = site.create(wire.DRAIN, source="a").task
    site.settle()
    assert site.task(drained).state == wire.TASK_DONE
    moved = []
    for _ in range(1001):
        moved.append(site.create(wire.MOVE, b"k", "b").task)
        site.task(moved[-1], is_cancel=True)
    assert site.create(wire.DRAIN, source="a").task == drained
    assert site.task(drained).state == wire.TASK_DONE
    assert site.step(wire.TaskQuery([moved[0]])).tasks == [], "the first of those is forgotten"
    assert site.create(wire.UNDRAIN, source="a").task == drained
