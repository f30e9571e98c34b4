"""Copies, moves, drains, repair and heat in a store of real processes, under verifying readers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from array import array

import pytest

from mooncake_core.store import PutOptions, StoreAdmin
from tests.store.processes import ROOT, Cluster, eventually

pytestmark = pytest.mark.cluster

KIB = 1 << 10
WAIT_S = 30.0
MOONCAKE_DRAIN = ("-m", "mooncake_cli", "store", "drain")


@pytest.fixture(params=["shm", "network"])
def trio(request):
    cluster = Cluster(request.param, nodes=3, capacity="16 MiB")
    yield cluster
    cluster.close()


def content(key, size=64 * KIB):
    return random.Random(key).randbytes(size)


def fill(cluster, count, **options):
    keys = [f"k{number}" for number in range(count)]
    for key in keys:
        assert cluster.client.put(key, content(key), options=PutOptions(**options))
    return keys


def homes(cluster, key):
    [found] = cluster.client.describe([key])
    return sorted(found.copies)


def node_named(cluster, name):
    return next((node for node in cluster.client.stats().nodes if node.name == name), None)


class Readers:
    """Read keys over and over, and count what is wrong and what is not there."""

    def __init__(self, cluster, keys):
        self.keys, self.done = keys, threading.Event()
        self.wrong, self.missed, self.reads = [], [], 0
        self.client = cluster.new_client()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        rng = random.Random(1)
        while not self.done.is_set():
            key = rng.choice(self.keys)
            value = self.client.get(key)
            self.reads += 1
            if value is None:
                self.missed.append(key)
            elif value != content(key):
                self.wrong.append(key)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def test_a_copy_and_a_move_go_where_they_are_told(trio):
    admin = StoreAdmin(trio.rpc)
    [key] = fill(trio, 1, preferred=("node-0",))
    assert homes(trio, key) == ["node-0"]
    assert admin.wait(admin.copy(key, ["node-1"]), WAIT_S).state == "done"
    assert homes(trio, key) == ["node-0", "node-1"]
    assert admin.wait(admin.move(key, "node-0", "node-2"), WAIT_S).state == "done"
    assert homes(trio, key) == ["node-1", "node-2"]
    assert trio.client.get(key) == content(key)
    assert node_named(trio, "node-0").used_bytes == 0


def test_a_node_is_drained_and_leaves_while_readers_verify(trio):
    keys = fill(trio, 120)
    with Readers(trio, keys) as readers:
        run = subprocess.run(
            [sys.executable, *MOONCAKE_DRAIN, "node-1", "--wait", "--json", f"--master={trio.rpc}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=WAIT_S,
        )
        assert run.returncode == 0, run.stderr
        [status] = json.loads(run.stdout)
        assert status["state"] == "done" and status["done_bytes"] == status["total_bytes"] > 0
        assert node_named(trio, "node-1").used_bytes == 0
        assert node_named(trio, "node-1").state == "draining"
        trio.nodes[1].kill()
        trio.processes.remove(trio.nodes[1])
        eventually(lambda: node_named(trio, "node-1") is None, "the node is lost")
        seen = readers.reads
        eventually(lambda: readers.reads > seen + 100, "reads go on")
    assert not readers.wrong and not readers.missed
    assert all(trio.client.get(key) == content(key) for key in keys)
    assert trio.client.stats().evictions == 0


def test_a_node_that_is_told_to_stop_lets_others_take_over_what_it_holds(trio):
    node = trio.launch_node(drain_s=WAIT_S)
    node.hear()
    trio.await_nodes(4)
    keys = fill(trio, 30, preferred=("node-3",))
    assert all(homes(trio, key) == ["node-3"] for key in keys)
    node.child.stdin.close()
    assert node.child.wait(timeout=WAIT_S) == 0
    trio.processes.remove(node)
    node.child.stdout.close()
    eventually(lambda: node_named(trio, "node-3") is None, "the node has left")
    assert all(trio.client.get(key) == content(key) for key in keys)


def test_a_drain_that_cannot_end_says_why(trio):
    keys = fill(trio, 200, preferred=("node-0",), pin="hard")
    fill_up = [f"f{number}" for number in range(460)]
    for key in fill_up:
        trio.client.put(key, content(key), options=PutOptions(preferred=("node-1", "node-2")))
    admin = StoreAdmin(trio.rpc)
    status = admin.wait(admin.drain("node-0"), WAIT_S)
    assert status.state == "failed"
    assert "have no room on other nodes" in status.problem
    assert node_named(trio, "node-0").state == "online"
    assert all(trio.client.get(key) == content(key) for key in keys)


def test_a_flipped_byte_is_found_served_from_the_other_copy_and_repaired(trio):
    [key] = fill(trio, 1, replicas=2, preferred=("node-0", "node-1"))
    node = node_named(trio, "node-0")
    engine = trio.client.engine
    remote = engine.open_segment(node.endpoint, int(node.id, 16))
    own = engine.create_segment(1)
    own.buffer[0] = content(key)[100] ^ 1
    # The only object of its node begins at 0, with a header of 64 bytes.
    remote.write(array("Q", [own.address]), array("Q", [64 + 100]), array("Q", [1]))

    def is_repaired():
        assert trio.client.get(key) == content(key)
        stats = trio.client.stats()
        return stats.corrupt == 1 and stats.repaired_copies == 1

    eventually(is_repaired, "the corrupt copy was replaced")
    assert len(homes(trio, key)) == 2
    assert all(trio.client.get(key) == content(key) for _ in range(20))
    assert trio.client.stats().corrupt == 1


def test_copies_of_a_killed_node_are_restored_on_a_third(trio):
    keys = fill(trio, 60, replicas=2)
    with Readers(trio, keys) as readers:
        trio.nodes[0].kill()
        trio.processes.remove(trio.nodes[0])
        eventually(
            lambda: all(homes(trio, key) == ["node-1", "node-2"] for key in keys),
            "two copies of each",
        )
    assert not readers.wrong
    assert all(trio.client.get(key) == content(key) for key in keys)


def test_a_hot_object_gets_a_second_copy_and_loses_it_again():
    cluster = Cluster("shm", nodes=2, capacity="16 MiB", hot_gets_per_s=20.0, heat_half_life_s=0.5)
    try:
        [key] = fill(cluster, 1)

        def is_hot():
            assert cluster.client.get(key) == content(key)
            return len(homes(cluster, key)) == 2

        eventually(is_hot, "a second copy")
        eventually(lambda: len(homes(cluster, key)) == 1, "one copy again")
        assert cluster.client.get(key) == content(key)
        assert cluster.client.stats().hot_copies >= 1
    finally:
        cluster.close()


def test_tasks_are_listed_and_an_unknown_node_is_refused(trio):
    def mooncake(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mooncake_cli", "store", *arguments, f"--master={trio.rpc}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=WAIT_S,
        )

    refused = mooncake("drain", "nobody")
    assert refused.returncode == 1
    assert "no node is called 'nobody'" in refused.stderr
    admin = StoreAdmin(trio.rpc)
    admin.wait(admin.drain("node-2"), WAIT_S)
    listed = mooncake("tasks")
    assert listed.returncode == 0 and "drain" in listed.stdout and "node-2" in listed.stdout
    assert mooncake("tasks", "--cancel=99").returncode == 1
    assert node_named(trio, "node-2").state == "draining"
    assert mooncake("drain", "node-2", "--undo").returncode == 0
    assert node_named(trio, "node-2").state == "online"
    again = mooncake("drain", "node-2", "--undo")
    assert (again.returncode, "not being drained" in again.stderr) == (1, True)
    assert mooncake("drain", "node-2", "--undo", "--wait").returncode == 2
