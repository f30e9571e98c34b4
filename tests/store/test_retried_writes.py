"""Ranges that are written again because of another one's fault."""

from __future__ import annotations

import ctypes
import signal
from array import array

import pytest

from mooncake_core.errors import MooncakeError
from mooncake_core.store import PutOptions
from tests.store.processes import Cluster, eventually

SIZE = 10_000
LARGE = 200_000


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.fixture(params=["shm", "network"])
def cluster(request):
    cluster = Cluster(request.param, nodes=3)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("nodes", [(0, 1), (1, 0)])
def test_a_range_beside_one_of_unregistered_memory_has_the_right_checksum(cluster, nodes):
    """One node takes its batch, another refuses its own, which has a piece of the wrong memory."""
    client = cluster.client
    own, wrong = client.engine.create_segment(SIZE), bytearray(SIZE)
    address = own.address
    own.buffer[:] = bytes(number % 251 for number in range(SIZE))
    first, second = (
        client.open_write(
            key,
            size_bytes=SIZE,
            options=PutOptions(replicas=2, preferred=[f"node-{node}" for node in those]),
        )
        for key, those in (("first", nodes), ("second", (1, 2)))
    )
    with pytest.raises((ValueError, MooncakeError)) as raised:
        client.write_ranges(
            [first, second],
            [0, 0],
            array("Q", [address, address + 10, address_of(wrong)]),
            array("Q", [10, 10, SIZE]),
            counts=array("Q", [2, 1]),
        )
    assert "registered" in str(raised.value)
    first.write(20, array("Q", [address + 20]), array("Q", [SIZE - 20]))
    assert first.commit()
    second.write(0, array("Q", [address]), array("Q", [SIZE]))
    assert second.commit()
    assert client.batch_get(["first", "second"]) == [bytes(own.buffer)] * 2
    assert client.read_faults["corrupt"] == 0
    own.close()


@pytest.mark.parametrize("nodes", [(0, 1), (1, 0)])
def test_what_a_node_may_still_take_is_kept_from_others_whoever_else_was_at_fault(nodes):
    """One node refuses its batch for the caller's fault while another stands still amid its own."""
    cluster = Cluster("network", nodes=3, capacity="16 MiB", ttl_s=20.0, repairs=False)
    try:
        client = cluster.new_client(timeout_s=1.0)
        own, wrong = client.engine.create_segment(LARGE), bytearray(SIZE)
        options = [
            PutOptions(replicas=2, preferred=[f"node-{node}" for node in those])
            for those in (nodes, (0, 2))
        ]
        first = client.open_write("first", size_bytes=LARGE, options=options[0])
        second = client.open_write("second", size_bytes=SIZE, options=options[1])
        assert client.put("met", b"x", options=PutOptions(replicas=3))  # all are connected to
        cluster.nodes[1].signal(signal.SIGSTOP)
        with pytest.raises((ValueError, MooncakeError), match="registered"):
            client.write_ranges(
                [first, second],
                [0, 0],
                array("Q", [own.address, address_of(wrong)]),
                array("Q", [LARGE, SIZE]),
            )
        assert first.commit()
        assert client.stats().quarantined_bytes >= LARGE
        cluster.nodes[1].signal(signal.SIGCONT)
        eventually(lambda: client.stats().quarantined_bytes == 0, "it is fenced")
        own.close()
    finally:
        cluster.close()
