"""What a store survives: processes killed and stopped, on both transports."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import threading
import time
from array import array
from collections import OrderedDict

import pytest

from mooncake_core.config import MasterConfig
from mooncake_core.errors import (
    ConfigError,
    StaleEpoch,
    StoreUnavailable,
    TransferTimeout,
    WireError,
)
from mooncake_core.store.master_service import serve_master
from tests.store.processes import TTL_S, eventually

pytestmark = pytest.mark.cluster

KIB = 1 << 10


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


def used(cluster):
    stats = cluster.stats()
    return (stats.used_bytes, stats.quarantined_bytes, stats.writing)


def fill(client, prefix, count, size=64 * KIB):
    for number in range(count):
        key = f"{prefix}-{number}"
        assert client.put(key, content(key, size))


def assert_no_wrong_byte(client, prefix, count, size=64 * KIB):
    hits = 0
    for number in range(count):
        key = f"{prefix}-{number}"
        value = client.get(key)
        assert value in (None, content(key, size)), f"{key} has other bytes"
        hits += value is not None
    return hits


def test_ten_times_the_capacity_goes_in_while_readers_verify(cluster):
    """No put fails, nothing overflows, no reader sees other bytes, and it hits like an LRU."""
    size, done = 64 * KIB, threading.Event()
    wrong, reads = [], [0]

    def read():
        client, rng = cluster.new_client(), random.Random(2)
        while not done.is_set():
            key = f"flow-{rng.randrange(1280)}"
            value = client.get(key)
            reads[0] += 1
            if value not in (None, content(key, size)):
                wrong.append(key)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    fill(cluster.client, "flow", 1280)
    stats = cluster.stats()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert reads[0] > 100
    assert stats.used_bytes <= stats.capacity_bytes == 8 << 20
    assert stats.evictions > 1000


def test_hits_are_at_least_95_percent_of_a_plain_lru(cluster):
    client, rng, size = cluster.client, random.Random(4), 64 * KIB
    oracle, hits, oracle_hits = OrderedDict(), 0, 0
    room = 2 * (cluster.client.stats().capacity_bytes // 2 // (size + 64))
    for _ in range(2000):
        key = f"lru-{min(int(rng.paretovariate(0.5)), 600)}"
        if key in oracle:
            oracle_hits += 1
            oracle.move_to_end(key)
        else:
            oracle[key] = True
            if len(oracle) > room:
                oracle.popitem(last=False)
        value = client.get(key)
        if value is None:
            assert client.put(key, content(key, size))
        else:
            assert value == content(key, size)
            hits += 1
    assert oracle_hits > 500
    assert hits >= 0.95 * oracle_hits


def test_a_killed_writer_leaks_nothing(cluster):
    before = used(cluster)
    writer = cluster.start_writer("orphan")
    assert used(cluster) != before
    writer.kill()
    eventually(lambda: used(cluster) == before, "the space came back", timeout_s=TTL_S * 3 + 5)
    assert cluster.client.put("orphan", b"x")


def test_a_writer_that_slept_through_its_expulsion_writes_nothing(cluster):
    writer = cluster.start_writer("sleeper", parts=4)
    writer.signal(signal.SIGSTOP)
    eventually(lambda: cluster.stats().expired_sessions == 1, "the writer is expelled")
    fill(cluster.client, "reuse", 150)
    assert cluster.client.put("sleeper", b"another's")
    writer.signal(signal.SIGCONT)
    writer.tell()
    assert writer.hear() != "committed"
    assert writer.hear() == [True, True], "it goes on under a new identity"
    assert cluster.client.get("sleeper") == b"another's"
    fill(cluster.client, "more", 40)
    hits = assert_no_wrong_byte(cluster.client, "reuse", 150)
    hits += assert_no_wrong_byte(cluster.client, "more", 40)
    assert hits >= 90, "8 MiB hold 126, or 94 until the writer's 2 MiB are fenced"
    assert cluster.client.read_faults == {"corrupt": 0, "stale": 0, "unreachable": 0}
    eventually(lambda: cluster.stats().quarantined_bytes == 0, "the fence has completed")


def test_a_write_that_timed_out_is_fenced_before_its_space_is_used_again(network_cluster):
    cluster = network_cluster
    client = cluster.new_client(timeout_s=0.5)
    fill(client, "warm", 4)
    before, peer_id = used(cluster), client.engine.peer_id
    for node in cluster.nodes:
        node.signal(signal.SIGSTOP)
    with pytest.raises(TransferTimeout, match="no copy could be written"):
        client.put("late", content("late", 64 * KIB))
    assert client.engine.peer_id != peer_id
    for node in cluster.nodes:
        node.signal(signal.SIGCONT)
    eventually(lambda: cluster.stats().fences == 1, "the node was told to fence")
    eventually(lambda: used(cluster) == before, "the space came back")
    assert cluster.client.put("late", b"x")
    eventually(lambda: client.get("late") == b"x", "it goes on under its new identity")


def test_without_a_node_puts_are_told_so(cluster):
    for node in cluster.nodes:
        node.kill()
    eventually(lambda: cluster.stats().nodes == [], "both are lost")
    with pytest.raises(StoreUnavailable, match="no store node"):
        cluster.client.put("x", b"x")


def test_a_killed_node_costs_its_objects_and_no_more(cluster):
    client = cluster.client
    fill(client, "spread", 60)
    lost = cluster.nodes[0]
    lost.kill()
    started = time.monotonic()
    hits = assert_no_wrong_byte(client, "spread", 60)
    assert time.monotonic() - started < 5
    assert 20 <= hits < 60
    assert client.put("meanwhile", b"x")
    eventually(lambda: len(cluster.stats().nodes) == 1, "the node is gone")
    assert cluster.stats().used_bytes == cluster.stats().evictable_bytes
    cluster.start_node()
    cluster.await_nodes(2)
    fill(client, "spread-again", 100)
    assert assert_no_wrong_byte(client, "spread-again", 100) >= 95


def test_a_second_copy_serves_when_the_first_is_lost(cluster):
    client = cluster.new_client(replicas=2)
    fill(client, "twice", 20)
    cluster.nodes[0].kill()
    assert assert_no_wrong_byte(client, "twice", 20) == 20


def test_a_restarted_master_starts_cold_and_old_descriptors_miss(cluster):
    client = cluster.client
    fill(client, "old", 20)
    target = client.engine.create_segment(64 * KIB)
    reader = client.open_read(["old-0"])
    where, length = array("Q", [target.address]), array("Q", [64 * KIB])
    assert reader.read_part(0, 0, where, length)
    epoch = client.epoch
    cluster.master.kill()
    with pytest.raises(StoreUnavailable):
        client.put("nobody", b"x")
    cluster.start_master(cluster.rpc)
    eventually(lambda: client.epoch not in (0, epoch), "the client has met the new master")
    with pytest.raises(StaleEpoch):
        reader.check_valid()
    assert not reader.read_part(0, 0, where, length)
    cluster.await_nodes(2)
    assert_no_wrong_byte(client, "old", 20)
    fill(client, "new", 40)
    assert assert_no_wrong_byte(client, "new", 40) == 40
    assert not reader.read_part(0, 0, where, length)
    reader.close()


def test_a_stopped_node_is_left_out_and_comes_back(cluster):
    client = cluster.client
    fill(client, "slow", 20)
    cluster.nodes[0].signal(signal.SIGSTOP)
    eventually(
        lambda: "suspected" in [node.state for node in cluster.stats().nodes], "it is suspected"
    )
    assert client.put("elsewhere", b"x")
    cluster.nodes[0].signal(signal.SIGCONT)
    cluster.await_nodes(2)
    assert_no_wrong_byte(client, "slow", 20)


def test_a_stopped_master_expels_nobody(cluster):
    fill(cluster.client, "kept", 10)
    cluster.master.signal(signal.SIGSTOP)
    with pytest.raises(StoreUnavailable):
        cluster.new_client(timeout_s=3 * TTL_S).put("x", b"x")
    cluster.master.signal(signal.SIGCONT)
    assert assert_no_wrong_byte(cluster.client, "kept", 10) == 10
    assert (cluster.stats().lost_nodes, cluster.stats().expired_sessions) == (0, 0)


def test_a_read_lease_outlives_its_time_while_it_is_open(cluster):
    client = cluster.client
    fill(client, "held", 1)
    target = client.engine.create_segment(64 * KIB)
    with client.open_read(["held-0"]) as reader:
        opened = time.monotonic()
        number = 0
        while time.monotonic() < opened + 3:
            fill(client, f"press-{number}", 10)
            number += 1
        assert reader.read_part(0, 0, array("Q", [target.address]), array("Q", [64 * KIB]))
        assert bytes(target.buffer) == content("held-0", 64 * KIB)
    assert client.stats().evictions > 0


def test_garbage_on_the_masters_port_hurts_nobody(cluster):
    host, port = cluster.rpc.split(":")
    rng = random.Random(7)
    frame = b"CM\x01"
    for round_ in range(60):
        with socket.create_connection((host, int(port))) as raw:
            start = frame + bytes([rng.randrange(256)]) + rng.randbytes(12) if round_ % 2 else b""
            raw.sendall(start + rng.randbytes(rng.randrange(1, 3000)))
    with socket.create_connection((host, int(port))) as half_open:
        half_open.sendall(frame)
        fill(cluster.client, "calm", 5)
    assert assert_no_wrong_byte(cluster.client, "calm", 5) == 5


def test_the_admin_port_answers(cluster):
    host, port = cluster.admin.split(":")
    cluster.client.put("seen", b"x")

    def fetch(path):
        link = http.client.HTTPConnection(host, int(port), timeout=5)
        link.request("GET", path)
        answer = link.getresponse()
        body = answer.read().decode()
        link.close()
        return answer.status, body

    assert json.loads(fetch("/health")[1])["status"] == "ok"
    status = json.loads(fetch("/status")[1])
    assert (status["objects"], len(status["nodes"])) == (1, 2)
    assert "mooncake_store_puts_total 1.0" in fetch("/metrics")[1]
    assert fetch("/nothing")[0] == 404


@pytest.mark.parametrize("which", ["listen", "admin"])
async def test_an_address_in_use_is_named(which):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", which: address}
        with pytest.raises(ConfigError, match=f"^{which}: .*{address}"):
            await serve_master(MasterConfig(**given), ready=lambda _: None, stop=None)


def test_who_answers_and_is_no_master_is_named_by_its_address(cluster):
    wrong = cluster.admin
    cluster.rpc, right = wrong, cluster.rpc
    client = cluster.new_client()
    cluster.rpc = right
    with pytest.raises(WireError, match=f"at {wrong} no master .*: HTTP speaks there"):
        client.get("k")


def test_processes_that_are_told_to_stop_leave_at_once_and_the_master_knows(cluster):
    leaving = cluster.nodes[0]
    leaving.child.stdin.close()
    assert leaving.child.wait(timeout=10) == 0
    stats = cluster.stats()
    assert (len(stats.nodes), stats.lost_nodes) == (1, 0)
    cluster.master.child.stdin.close()
    assert cluster.master.child.wait(timeout=10) == 0
