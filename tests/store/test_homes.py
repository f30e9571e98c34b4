"""Where the copies of an object lie, as its client asks for it and hears of it."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from mooncake_core.errors import OutOfSpace, TooFewNodes
from mooncake_core.store import PutOptions
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

KIB, MIB = 1 << 10, 1 << 20


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


@pytest.fixture
def quartet(request):
    """Four nodes in three domains."""
    with closing(Cluster("shm", nodes=0, capacity="16 MiB", stripe="256 KiB")) as cluster:
        for domain in ("rack-a", "rack-a", "rack-b", "rack-c"):
            cluster.nodes.append(cluster.launch_node(domain=domain))
        for node in cluster.nodes:
            node.hear()
        cluster.await_nodes(4)
        yield cluster


def homes(cluster, key):
    return cluster.client.describe([key])[0].copies


def domains(cluster, key):
    domain = {node.name: node.domain for node in cluster.client.stats().nodes}
    return [domain[name] for name in homes(cluster, key)]


def test_preferred_nodes_get_the_copies_and_no_two_share_a_domain(quartet):
    client = quartet.client
    for name in ("node-3", "node-1"):
        assert client.put(name, b"x", options=PutOptions(preferred=(name,)))
        assert homes(quartet, name) == (name,)
    options = PutOptions(replicas=3, preferred=("node-1", "node-0", "node-3"))
    assert client.put("three", content("three", 100_000), options=options)
    assert homes(quartet, "three")[:2] == ("node-1", "node-3")
    assert sorted(domains(quartet, "three")) == ["rack-a", "rack-b", "rack-c"]
    for number in range(60):
        key = f"many-{number}"
        assert client.put(key, b"x", options=PutOptions(replicas=1 + number % 3))
        assert len(set(domains(quartet, key))) == len(homes(quartet, key)) == 1 + number % 3
    assert client.put("nowhere", b"x", options=PutOptions(preferred=("no such node",)))
    assert len(homes(quartet, "nowhere")) == 1
    assert client.put("four", b"x", options=PutOptions(replicas=4))
    assert len(homes(quartet, "four")) == 3, "fewer are reported"
    with client.open_write("open", size_bytes=1, replicas=4) as writer:
        assert writer.replicas == 3
    used = client.stats().used_bytes
    with pytest.raises(TooFewNodes, match=r"4 are wanted.*are in 3;"):
        client.put("strict", b"x", options=PutOptions(replicas=4, strict=True))
    assert not client.exists("strict")
    assert client.stats().used_bytes == used


def test_an_object_whose_stripes_lie_on_several_nodes_misses_when_one_of_them_dies(quartet):
    client, size = quartet.client, 3 * MIB
    assert client.put("one copy", content("one copy", size))
    assert client.put("two copies", content("two copies", size), options=PutOptions(replicas=2))
    used = [node.used_bytes for node in client.stats().nodes]
    assert min(used) > 0, "each has some of them"
    described = client.describe(["one copy"])[0]
    assert len(described.copies) == 1
    assert sorted(described.nodes) == sorted(node.name for node in client.stats().nodes)
    with pytest.raises(OutOfSpace, match="in stripes of 262144"):
        client.put("larger than all", bytes(65 * MIB))
    quartet.nodes[3].kill()
    eventually(lambda: client.get("one copy") is None, "it is noticed", timeout_s=0.5)
    assert client.get("two copies") == content("two copies", size)
    assert client.get_range("one copy", 0, 100) is None, "whole or not at all"
    eventually(lambda: len(client.stats().nodes) == 3, "the node is lost")
    assert client.put("one copy", content("one copy", size))
    assert client.get("one copy") == content("one copy", size)
