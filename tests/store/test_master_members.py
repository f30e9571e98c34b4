"""Who is taken in by the master: nodes with names of their own, as many clients as may be."""

from __future__ import annotations

import pytest

from mooncake_core.native import _native
from tests.store import wire
from tests.store.core import EPOCH, TTL_S, Store

CAPACITY = 64 << 10


def register(store, node, endpoint, name=b""):
    return store.step(wire.register(node, EPOCH, endpoint, CAPACITY, name=name))


def names(store):
    return {node.name: node.node for node in store.stats().nodes}


def test_a_name_that_another_node_has_is_refused_and_said_whose_it_is():
    store = Store()
    reply = register(store, 2, b"host:2", b"n1")
    assert (reply.is_known, reply.refusal) == (False, wire.NAME_TAKEN)
    assert b"'n1'" in reply.problem
    assert b"host:1" in reply.problem
    assert names(store) == {b"n1": 1}
    assert register(store, 2, b"host:2", b"n2").is_known


def test_an_address_is_a_name_too():
    store = Store()
    register(store, 2, b"host:2", b"host:3")
    assert register(store, 3, b"host:3").refusal == wire.NAME_TAKEN


def test_a_node_at_the_same_address_takes_over_its_name():
    store = Store()
    assert register(store, 2, b"host:1", b"n1").is_known
    assert names(store) == {b"n1": 2}


def test_the_name_of_a_dead_node_is_free_once_it_is_lost():
    store = Store()
    store.core.native.node_disconnected(1, store.now_s)
    assert register(store, 2, b"host:2", b"n1").refusal == wire.NAME_TAKEN  # it may come back
    store.pass_time(TTL_S + 0.2)
    assert register(store, 2, b"host:2", b"n1").is_known
    assert names(store) == {b"n1": 2}


def test_a_name_that_was_refused_may_be_asked_for_again_with_the_same_memory():
    store = Store()
    assert not register(store, 2, b"host:2", b"n1").is_known
    store.call(wire.NODE_GOODBYE, wire.One(1), None)
    assert register(store, 2, b"host:2", b"n1").is_known


@pytest.mark.parametrize("endpoint", [b"e5", b"host:", b":1", b"host:70000", b"::1:5", b""])
def test_an_endpoint_that_no_client_could_reach_is_refused(endpoint):
    store = Store()
    reply = register(store, 2, endpoint, b"n2")
    assert (reply.is_known, reply.refusal) == (False, wire.NODE_INVALID)
    assert b"host:port" in reply.problem
    assert names(store) == {b"n1": 1}


def test_what_else_cannot_be_is_refused_and_said():
    store = Store()
    reply = store.step(wire.register(2, EPOCH, b"host:2", 0, name=b"n2"))
    assert (reply.refusal, b"0 bytes" in reply.problem) == (wire.NODE_INVALID, True)
    reply = register(store, 2, b"host:2", b"n" * 257)
    assert (reply.refusal, b"257 bytes" in reply.problem) == (wire.NODE_INVALID, True)


def test_more_clients_than_may_be_are_refused_until_some_are_gone():
    store = Store(max_sessions=3)
    for number in (10, 11):
        store.step(wire.Hello(0, number), fresh_id=number)
    with pytest.raises(_native.Error, match="as many clients") as caught:
        store.step(wire.Hello(0, 12), fresh_id=12)
    assert caught.value.args[0] == _native.Code.kUnavailable
    assert store.stats().clients == 3
    assert store.step(wire.Hello(10, 12), fresh_id=12).session == 12  # in place of its own
    store.call(wire.GOODBYE, wire.One(11), None)
    assert store.step(wire.Hello(0, 13), fresh_id=13).session == 13


# --- pins that nobody heard of


def beat(store, pins, upto, after=0):
    return store.step(wire.Heartbeat(store.session, [], pins, after, upto))


def test_a_pin_whose_answer_was_lost_ends_with_a_heartbeat_that_does_not_list_it():
    store = Store()
    store.put(b"k")
    lost = store.lookup(b"k", is_pin=True).lease
    kept = store.lookup(b"k", is_pin=True).lease
    told = beat(store, [kept], 0).last_lease
    assert told == kept > lost
    assert store.stats().leases == 2
    beat(store, [kept], told)
    assert store.stats().leases == 1
    beat(store, [], told)
    assert store.stats().leases == 0


def test_a_heartbeat_says_nothing_of_pins_that_are_younger_or_out_of_its_range():
    store = Store()
    store.put(b"k")
    first = store.lookup(b"k", is_pin=True).lease
    told = beat(store, [first], 0).last_lease
    store.lookup(b"k", is_pin=True)  # under way while the heartbeat is
    beat(store, [first], told)
    beat(store, [], told, after=first)
    assert store.stats().leases == 2


def test_leases_are_not_pins():
    store = Store()
    store.put(b"k")
    lease = store.lookup(b"k").lease
    beat(store, [], lease)
    assert store.stats().leases == 1


# --- answers that would be too large


def test_what_would_be_described_with_too_much_is_refused_before_it_is_made():
    store = Store(capacity=32 << 20)
    keys = [b"%03d" % number + bytes(60_000) for number in range(420)]
    for key in keys:
        store.put(key, 0, group=key)
    with pytest.raises(_native.Error, match="more than 48 MiB; ask for fewer"):
        store.step(wire.Describe(keys))
    assert len(store.step(wire.Describe(keys[:100])).objects) == 100
    assert len(store.list()) == len(keys)


def test_tasks_whose_answer_would_be_too_large_are_refused_and_few_are_not():
    store = Store(capacity=32 << 20)
    key = bytes(60_000)
    store.put(key)
    tasks = [store.step(wire.TaskCreate(wire.COPY, key)).task for _ in range(860)]
    with pytest.raises(_native.Error, match="more than 48 MiB; ask for fewer"):
        store.step(wire.TaskQuery())
    assert len(store.step(wire.TaskQuery(tasks[:100])).tasks) == 100


# --- drains that are undone


def drain(store, name):
    task = store.step(wire.TaskCreate(wire.DRAIN, b"", name)).task
    store.settle()
    return task


def undrain(store, name):
    return store.step(wire.TaskCreate(wire.UNDRAIN, b"", name))


def test_a_node_that_was_emptied_takes_objects_again_when_its_drain_is_undone():
    store = Store(nodes=2)
    task = drain(store, b"n1")
    [status] = store.step(wire.TaskQuery([task])).tasks
    assert status.state == wire.TASK_DONE
    assert store.put(b"k", preferred=[b"n1"]) == wire.STARTED
    assert undrain(store, b"n1").task == task
    assert [node.state for node in store.stats().nodes] == [0, 0]
    reply, _ = store.start(b"l", preferred=[b"n1"])
    assert [node for node, _ in reply.places()] == [1]


def test_a_drain_that_runs_is_cancelled_when_it_is_undone():
    store = Store(nodes=2)
    store.start(b"k", preferred=[b"n1"])  # being written: it stays
    task = drain(store, b"n1")
    undrain(store, b"n1")
    [status] = store.step(wire.TaskQuery([task])).tasks
    assert status.state == wire.TASK_CANCELLED
    assert [node.state for node in store.stats().nodes] == [0, 0]


def test_only_a_drain_can_be_undone():
    store = Store()
    assert b"'n1' is not being drained" in undrain(store, b"n1").problem
    assert b"no node is called 'n2'" in undrain(store, b"n2").problem


def test_what_is_short_of_a_copy_gets_it_when_a_drain_is_undone():
    store = Store(nodes=2)
    drain(store, b"n2")
    assert store.put(b"k", replicas=2) == wire.STARTED
    store.settle()
    undrain(store, b"n2")
    store.settle()
    assert store.step(wire.NodeHeartbeat(2)).orders


def test_what_is_short_of_a_copy_gets_it_when_a_node_comes_back():
    store = Store(nodes=2)
    store.core.native.node_disconnected(2, store.now_s)
    assert store.put(b"k", replicas=2) == wire.STARTED
    store.settle()
    store.step(wire.NodeHeartbeat(2))
    store.settle()
    assert store.step(wire.NodeHeartbeat(2)).orders


@pytest.mark.parametrize("name", [b"n\x1b[31m", b"n\n", b"n\0", b"n\x7f"])
def test_a_name_with_control_characters_is_refused(name):
    store = Store()
    reply = register(store, 2, b"host:2", name)
    assert reply.refusal == wire.NODE_INVALID
    assert b"control character" in reply.problem
