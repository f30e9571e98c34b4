"""Ranges that are written again because of another one's fault."""

from __future__ import annotations

import ctypes
from array import array

import pytest

from mooncake_core.errors import MooncakeError
from mooncake_core.store import PutOptions
from tests.store.processes import Cluster

SIZE = 10_000


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
