"""Links on which bytes change: what was put is what is read, or it is a miss."""

from __future__ import annotations

import random
from array import array

import pytest

from mooncake_core.store import PutOptions, StoreAdmin
from tests.store.fire.lender import Lender
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

MIB = 1 << 20
SIZE = 700_000
WAIT_S = 60.0


ON_LENDER = PutOptions(preferred=("lender",))


def content(key, size=SIZE):
    return random.Random(repr(key)).randbytes(size)


@pytest.fixture(scope="module")
def pair():
    """A node, and a lender whose link can be faulty."""
    cluster = Cluster("network", nodes=1, capacity="8 MiB", repairs=False)
    lender = Lender(cluster.rpc, 64 * MIB, cluster.ttl_s)
    cluster.await_nodes(2)
    yield cluster, lender
    lender.close()
    cluster.close()


def get_view(client, key):
    view = client.view(key)
    if view is None:
        return None
    with view, view.buffer as seen:
        return bytes(seen)


def get_range(client, key):
    """Read all but the first and the last bytes."""
    middle = client.get_range(key, 100, SIZE - 200)
    return None if middle is None else content(key)[:100] + middle + content(key)[-100:]


def get_scattered(client, key):
    memory = client.engine.create_segment(SIZE)
    half = SIZE // 2
    runs = array("Q", [memory.address + half, memory.address])
    size = client.get_into_memory(key, runs, array("Q", [SIZE - half, half]))
    value = bytes(memory.buffer[half:]) + bytes(memory.buffer[:half])
    memory.close()
    return None if size is None else value


FORMS = {
    "get": lambda client, key: client.get(key),
    "batch": lambda client, key: client.batch_get([key, "nothing"])[0],
    "range": get_range,
    "view": get_view,
    "scattered": get_scattered,
}


@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_change_on_their_way_to_a_reader_are_a_miss_or_come_from_another_copy(
    pair, form
):
    cluster, lender = pair
    client, before = cluster.client, cluster.client.read_faults["corrupt"]
    single, double = f"single-{form}", f"double-{form}"
    assert client.put(single, content(single), options=ON_LENDER)
    assert client.put(double, content(double), options=PutOptions(replicas=2))
    lender.relay.answers.faults = float("inf")
    assert FORMS[form](client, single) is None
    for _ in range(4):
        assert FORMS[form](client, double) == content(double)
    lender.relay.answers.faults = 0
    assert before + 1 <= client.read_faults["corrupt"] <= before + 2
    eventually(lambda: not client.exists(single), "it is dropped")
    assert client.put(single, content(single), options=ON_LENDER)
    assert FORMS[form](client, single) == content(single)
    assert FORMS[form](client, double) == content(double)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_change_once_on_their_way_to_a_reader_are_read_again(pair, form):
    """No copy is blamed for a link that is good again."""
    cluster, lender = pair
    client, key = cluster.client, f"once-{form}"
    before, reported = client.read_faults["corrupt"], client.stats().corrupt
    assert client.put(key, content(key), options=ON_LENDER)
    lender.relay.answers.faults = 1
    assert FORMS[form](client, key) == content(key)
    assert lender.relay.answers.faults == 0
    assert client.read_faults["corrupt"] == before + 1
    assert client.stats().corrupt == reported
    assert client.remove(key)


def test_bytes_that_change_before_their_node_is_cut_off_are_counted_with_what_cuts_it_off(pair):
    cluster, lender = pair
    client, value = cluster.new_client(timeout_s=1.0), content("cut", 8_000)
    assert client.put("cut", value, options=ON_LENDER)
    assert client.get("cut") == value
    flow = lender.relay.answers
    flow.is_held_after_faults, flow.faults = True, 1
    try:
        assert client.get("cut") is None
    finally:
        flow.is_held_after_faults = False
        lender.relay.resume()
    assert (client.read_faults["corrupt"], client.read_faults["unreachable"]) == (1, 1)


def test_bytes_that_change_once_on_their_way_to_a_new_copy_are_fetched_again(pair):
    cluster, lender = pair
    client = cluster.client
    assert client.put("moved", content("moved"), options=ON_LENDER)
    reported = client.stats().corrupt
    lender.relay.answers.faults = 1
    admin = StoreAdmin(cluster.rpc)
    assert admin.wait(admin.move("moved", "lender"), WAIT_S).state == "done"
    assert lender.relay.answers.faults == 0
    assert client.stats().corrupt == reported
    assert client.describe(["moved"])[0].copies != ("lender",)
    assert client.get("moved") == content("moved")
    assert client.remove("moved")


def test_bytes_that_change_on_their_way_to_a_node_are_never_read(pair):
    cluster, lender = pair
    client = cluster.client
    lender.relay.questions.faults = float("inf")
    assert client.put("written", content("written"), options=ON_LENDER)
    assert client.put("twice", content("twice"), options=PutOptions(replicas=2))
    lender.relay.questions.faults = 0
    assert client.get("written") is None
    for _ in range(4):
        assert client.get("twice") == content("twice")
    assert client.put("written", content("written"), options=ON_LENDER)
    assert client.get("written") == content("written")
    assert client.stats().corrupt >= 1
