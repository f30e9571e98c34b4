"""Large objects in stripes on several nodes, and what becomes of a byte that changed."""

from __future__ import annotations

import random
from array import array

import pytest

from mooncake_core.errors import OutOfSpace
from mooncake_core.store import PutOptions
from tests.store.processes import Cluster, eventually

KIB, MIB = 1 << 10, 1 << 20


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


def words(*values):
    return array("Q", values)


@pytest.fixture(scope="module", params=["shm", "network"])
def striped(request):
    cluster = Cluster(request.param, nodes=3, capacity="16 MiB", stripe="512 KiB")
    yield cluster
    cluster.close()


@pytest.mark.parametrize("part_bytes", [0, 300_000])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_striped_object_is_written_and_read_like_any_other(striped, part_bytes, replicas):
    client, key = striped.client, f"striped-{part_bytes}-{replicas}"
    size = 2 * MIB + 12_345
    value = content(key, size)
    memory = client.engine.create_segment(size)
    memory.buffer[:] = value
    with client.open_write(
        key, size_bytes=size, part_bytes=part_bytes, replicas=replicas
    ) as writer:
        assert writer.replicas == replicas
        for begin in random.Random(2).sample(range(0, size, 200_000), -(-size // 200_000)):
            length = min(200_000, size - begin)
            writer.write(begin, words(memory.address + begin), words(length))
        writer.commit()
    assert client.get(key) == value
    assert client.get_range(key, MIB - 100, 700_000) == value[MIB - 100 : MIB + 699_900]
    with client.view(key) as view, view.buffer as buffer:
        assert view.is_copy
        assert buffer == value
    assert client.remove(key)
    memory.close()


@pytest.fixture(scope="module")
def unequal():
    cluster = Cluster("shm", nodes=0, stripe="256 KiB")
    for cluster.capacity in ("2 MiB", "8 MiB", "32 MiB"):
        cluster.start_node()
    cluster.await_nodes(3)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("size", "replicas", "copies"),
    [(1_000_000, 3, 3), (2_500_000, 2, 2), (10_000_000, 3, 2), (20_000_000, 2, 1)],
)
def test_on_unequal_nodes_as_many_copies_in_stripes_are_made_as_fit(
    unequal, size, replicas, copies
):
    """What is too small for a copy is left out, and with fewer copies each has more domains."""
    client, value = unequal.client, content("unequal", size)
    for strict in (False, True):
        options = PutOptions(replicas=replicas, strict=strict)
        if strict and copies < replicas:
            with pytest.raises(OutOfSpace):
                client.put("unequal", value, options=options)
            continue
        with client.open_write("unequal", size_bytes=size, options=options) as writer:
            assert writer.replicas == copies
        assert client.put("unequal", value, options=options)
        assert client.get("unequal") == value
        assert client.remove("unequal")
        eventually(lambda: client.stats().used_bytes == 0, "what was read is let go")


def flip_a_byte(cluster, value, names):
    """Change one byte of `value` where one of these nodes has it; return how many had."""
    engine, flipped = cluster.client.engine, 0
    for node in (node for node in cluster.client.stats().nodes if node.name in names):
        memory = engine.create_segment(node.capacity_bytes)
        remote = engine.open_segment(node.endpoint, int(node.id, 16))
        remote.read(words(memory.address), words(0), words(node.capacity_bytes))
        at = memory.buffer.tobytes().find(value)
        if at >= 0:
            memory.buffer[at + 5] ^= 1
            remote.write(words(memory.address + at + 5), words(at + 5), words(1))
            flipped += 1
        memory.close()
    return flipped


def test_a_byte_that_changed_is_a_miss_and_is_counted(cluster):
    client, value = cluster.client, content("flipped", 100 * KIB)
    assert client.put("flipped", value)
    assert flip_a_byte(cluster, value, ["node-0", "node-1"]) == 1
    assert client.get("flipped") is None
    assert client.read_faults["corrupt"] == 1
    eventually(lambda: not client.exists("flipped"), "the object is dropped")
    assert client.put("flipped", value)
    assert client.get("flipped") == value


def test_where_one_copy_is_wrong_the_other_is_read(cluster):
    client, value = cluster.client, content("twice", 100 * KIB)
    assert client.put("twice", value, options=PutOptions(replicas=2))
    assert flip_a_byte(cluster, value, [client.describe(["twice"])[0].copies[0]]) == 1
    for _ in range(4):
        assert client.get("twice") == value
    assert client.read_faults["corrupt"] <= 1
