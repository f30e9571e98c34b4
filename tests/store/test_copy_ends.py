"""From where to where copies go that are made in the background, while others come and go."""

from __future__ import annotations

import pytest

from tests.store import wire
from tests.store.site import Site


@pytest.mark.parametrize("objects", [18, 19])
@pytest.mark.parametrize("slices", range(12))
def test_a_copy_does_not_go_to_whoever_comes_in_the_place_of_its_target(objects, slices):
    """Room is made for it on `b`, which is lost; `c` takes its number once all there is free."""
    site = Site("a", "b", capacity=64 << 10, step_evictions=1)
    for at in range(objects):
        site.put(b"b%d" % at, size=3000, preferred=[b"b"])
    site.put(b"k", size=40_000, preferred=[b"a"])
    created = site.create(wire.COPY, b"k", targets=["b"])
    site.core.native.run_slice(site.now)
    assert site.task(created.task).state == wire.RUNNING
    assert site.stats().copy_orders == 0, "it still waits for room"
    site.lose("b")
    for _ in range(slices):
        site.core.native.run_slice(site.now)
    site.add_node("c", capacity=64 << 10)
    site.settle()
    assert site.task(created.task).state == wire.TASK_FAILED
    assert site.homes(b"k") == ["a"]
    assert site.used("c") == 0


def ordered(site, name):
    """Return the names of the nodes that `name` is to fetch the one stripe from."""
    [order] = site.beat(name).orders.values()
    return [site.by_number(number).name for number, _ in wire.sources(order)]


def put_on_two(site):
    grant = site.put(b"k", replicas=2, preferred=[b"a", b"b"])
    assert site.homes(b"k") == ["a", "b"]
    return grant


def report_corrupt(site, grant, name):
    site.step(wire.Corrupt(b"k", grant.generation, site.nodes[name].number))


def test_a_copy_that_has_turned_out_wrong_is_no_source_though_it_is_still_held():
    site = Site("a", "b", "c", repairs=False)
    grant = put_on_two(site)
    site.create(wire.COPY, b"k", targets=["c"])
    report_corrupt(site, grant, "a")
    assert site.used("a") > 0
    assert ordered(site, "c") == ["b"]


def test_a_node_that_is_not_heard_of_is_no_source():
    site = Site("a", "b", "c", repairs=False)
    put_on_two(site)
    site.create(wire.COPY, b"k", targets=["c"])
    site.core.native.node_disconnected(site.nodes["a"].number, site.now)
    assert ordered(site, "c") == ["b"]


def test_what_lost_a_copy_gets_another_while_readers_still_hold_the_lost_one():
    site = Site("a", "b", "c")
    grant = put_on_two(site)
    reader = site.lookup(b"k")
    report_corrupt(site, grant, "a")
    site.settle()
    assert site.used("a") > 0, "the reader is still there"
    assert site.homes(b"k") == ["b", "c"]
    site.release(reader)
    assert site.used("a") == 0


def test_a_result_of_an_order_that_was_never_sent_makes_no_copy():
    site = Site("a", "b")
    site.put(b"k", preferred=[b"a"])
    site.create(wire.COPY, b"k")
    early = [wire.CopyResult(number, True) for number in range(1, 10)]
    site.step(wire.NodeHeartbeat(site.nodes["b"].number, [], early))
    assert site.stats().counters.asked_copies == 0
    assert site.homes(b"k") == ["a"]
    site.settle()
    assert site.homes(b"k") == ["a", "b"]
