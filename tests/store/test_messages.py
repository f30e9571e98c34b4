"""How many questions the master is asked, and what becomes of answers that are too large."""

from __future__ import annotations

import collections
import contextlib
import signal
import socket
import struct
from array import array

import pytest

from mooncake_core.errors import StoreUnavailable
from mooncake_core.store import PutResult
from tests.store import wire
from tests.store.fire.relay import Relay
from tests.store.processes import Cluster

pytestmark = pytest.mark.cluster

_HEADER = struct.Struct("<HBBIQ")
MIB = 1 << 20


def number_of(message):
    return wire.ANSWERS[message][0]


class CountingRelay(Relay):
    """Counts the messages of each type that pass; answers have types of their own.

    From message `hold_from`, a type and how many of it, on nothing passes that way.
    """

    def __init__(self, target):
        self.counts, self.hold_from = collections.Counter(), None
        super().__init__(target)

    def _pass(self, source, target, flow):
        with contextlib.suppress(OSError, struct.error), source.makefile("rb") as frames:
            while header := frames.read(_HEADER.size):
                _, _, kind, length, _ = _HEADER.unpack(header)
                self.counts[kind] += 1
                if (kind, self.counts[kind]) == self.hold_from:
                    flow.may_pass.clear()
                target.sendall(flow.pass_on(header + frames.read(length)))
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def counted(cluster, **config):
    """A client of the cluster, and how many messages of each type it has sent and got."""
    relay, direct = CountingRelay(cluster.rpc), cluster.rpc
    cluster.rpc = relay.endpoint
    client = cluster.new_client(**config)
    cluster.rpc = direct
    try:
        yield client, relay.counts
    finally:
        client.close()
        relay.close()


def test_puts_that_a_node_did_not_take_are_aborted_with_one_question():
    cluster = Cluster("network", nodes=2, capacity="16 MiB", ttl_s=8.0)
    try:
        with counted(cluster, timeout_s=2.0) as (client, counts):
            keys = [f"key-{number}" for number in range(400)]
            cluster.nodes[0].signal(signal.SIGSTOP)
            assert all(client.batch_put((key, b"x" * 1000) for key in keys))
            assert 1 <= counts[number_of(wire.PutAbort)] <= 4
            assert client.batch_get(keys) == [b"x" * 1000] * len(keys)
    finally:
        cluster.close()


def test_keys_whose_answer_fits_no_message_are_asked_for_in_halves():
    """An object of 56 MiB in parts of 4 KiB has 56 KiB of checksums; a message takes 48 MiB."""
    cluster = Cluster("shm", nodes=1, capacity="64 MiB")
    try:
        with counted(cluster) as (client, counts):
            own = client.engine.create_segment(56 * MIB)
            address, length = array("Q", [own.address]), array("Q", [own.size_bytes])
            with client.open_write("large", size_bytes=own.size_bytes, part_bytes=4096) as writer:
                writer.write(0, address, length)
                assert writer.commit()
            assert client.put("small", b"small")
            before = counts[number_of(wire.Lookup)]
            with client.open_read([*["large"] * 1023, "small"]) as reader:
                assert counts[number_of(wire.Lookup)] - before == 3
                assert reader.count == 1024
                address, length = array("Q", [own.address]), array("Q", [5])
                assert reader.read(1023, 0, address, length)
                assert bytes(own.buffer[:5]) == b"small"
            with client.open_read([*["large"] * 700, "none", *["large"] * 323]) as reader:
                assert reader.count == 700
            with client.open_read([*["large"] * 7, "none", *["large"] * 1016]) as reader:
                assert reader.count == 7
    finally:
        cluster.close()


def test_a_put_waits_until_the_master_has_made_room_step_by_step():
    cluster = Cluster("shm", nodes=1, capacity="32 MiB")
    try:
        with counted(cluster) as (client, counts):
            small = [(b"%d" % number, b"x") for number in range(200_000)]
            assert all(client.batch_put(small))
            before = counts[number_of(wire.PutStart)]
            assert client.put("large", b"y" * (24 * MIB)) is PutResult.STORED
            assert counts[number_of(wire.PutStart)] - before > 2
            assert cluster.stats().making_room > 0
            assert client.get("large") == b"y" * (24 * MIB)
    finally:
        cluster.close()


def test_a_batch_whose_master_goes_silent_says_what_was_stored_before():
    cluster = Cluster("shm", nodes=1, capacity="32 MiB")
    relay, direct = CountingRelay(cluster.rpc), cluster.rpc
    try:
        cluster.rpc = relay.endpoint
        client = cluster.new_client(timeout_s=1.0)
        cluster.rpc = direct
        relay.hold_from = number_of(wire.PutStart), 3  # of 1,024 keys each
        keys = [b"%d" % number for number in range(4000)]
        with pytest.raises(StoreUnavailable) as raised:
            client.batch_put((key, b"x") for key in keys)
        results = raised.value.results
        assert results[:2048] == (PutResult.STORED,) * 2048
        assert [type(result) for result in results[2048:]] == [StoreUnavailable] * 1952
        assert repr(results[2048]) == repr(raised.value)
        assert cluster.client.batch_exists(keys) == [True] * 2048 + [False] * 1952
    finally:
        relay.close()
        cluster.close()
