"""Many at once: writers of one key, readers that never read, processes that come and go."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing

import pytest

from mooncake_core.errors import OutOfSpace
from tests.store import wire
from tests.store.fire.link import Link
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

ROUNDS, WRITERS = 300, 8
KIB = 1 << 10


def value_of(writer, number, size=3 * KIB):
    """Return bytes that say whose they are."""
    return random.Random(f"{writer} {number}").randbytes(size)


@pytest.mark.parametrize("are_equal", [True, False])
def test_a_key_that_is_put_got_and_removed_a_thousand_times_at_once_is_always_whole(
    cluster, are_equal
):
    lawful = {value_of(0 if are_equal else writer, n) for writer in range(8) for n in range(ROUNDS)}
    stored, removed, wrong, done = [0] * WRITERS, [0], [], threading.Event()

    def put(writer, client):
        for number in range(ROUNDS):
            stored[writer] += bool(client.put("one", value_of(0 if are_equal else writer, number)))

    def get(client):
        while not done.is_set():
            if (value := client.get("one")) is not None and value not in lawful:
                wrong.append(value)

    def remove(client):
        while not done.is_set():
            removed[0] += client.remove("one")

    writers = [
        threading.Thread(target=put, args=(at, cluster.new_client() if at % 2 else cluster.client))
        for at in range(WRITERS)
    ]
    others = [threading.Thread(target=each, args=(cluster.client,)) for each in (get, get, remove)]
    for thread in others + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    removed[0] += cluster.client.remove("one")
    assert wrong == []
    assert sum(stored) == removed[0] > 20, "each that was stored was removed once"
    eventually(lambda: cluster.stats().used_bytes == 0, "every byte is free again")


def test_ten_thousand_lookups_of_a_client_that_is_gone_pin_nothing_after_a_while():
    with closing(Cluster("shm", nodes=1, capacity="4 MiB")) as cluster:
        client = cluster.client
        keys = [b"k%d" % number for number in range(60)]
        assert all(client.batch_put((key, bytes(64 * KIB - 64)) for key in keys))
        link = Link(cluster.rpc)
        session = link.ask(wire.Hello(0, peer_id=99)).session
        for number in range(10_000):
            assert link.ask(wire.Lookup(session, False, False, [], [keys[number % 60]])).lease
        assert client.stats().leases == 10_000
        assert client.stats().pinned_bytes == 60 * 64 * KIB
        start = time.monotonic()
        with pytest.raises(OutOfSpace):
            client.put("new", bytes(1 << 20))
        assert time.monotonic() - start < 0.5
        link.close()
        eventually(lambda: client.stats().leases == 0, "its leases have ended")
        assert client.stats().pinned_bytes == 0
        assert client.put("new", bytes(1 << 20))


def test_a_node_that_starts_over_and_over_is_one_node_and_a_new_one_joins_a_new_master(
    network_cluster,
):
    cluster, client = network_cluster, network_cluster.client
    cluster.master.kill()
    cluster.start_master(cluster.rpc)
    third = cluster.launch_node()
    third.hear()
    cluster.await_nodes(3)
    assert client.put("well", b"1")
    for _ in range(4):
        third.kill()
        cluster.processes.remove(third)
        cluster.launched -= 1  # under the same name
        third = cluster.launch_node()
        third.hear()
        eventually(lambda: _names(cluster).count("node-2") == 1, "it is one node")
    cluster.await_nodes(3)
    assert _names(cluster) == ["node-0", "node-1", "node-2"]
    assert client.get("well") in (b"1", None)


def _names(cluster):
    return sorted(node.name for node in cluster.stats().nodes)
