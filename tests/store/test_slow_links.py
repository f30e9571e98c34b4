"""Reads over a link on which they take many times their lease, while others use the memory."""

from __future__ import annotations

import itertools
import random
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.store.fire.lender import Lender
from tests.store.fire.relay import Relay
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

KIB, MIB = 1 << 10, 1 << 20
LEASE_S = 0.3
CAPACITY = 16 * MIB
LARGE = 6 * MIB
MANY, SMALL = 5000, 1200
KEYS = [f"many-{number}" for number in range(MANY)]
MESSAGES = -(-MANY // 1024)  # of so many keys, each with a lease
RATE = 5 * MIB


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


class Site:
    """A node behind a relay, and a client whose questions to the master can be held back."""

    def __init__(self):
        self.cluster = Cluster("network", nodes=0, lease_s=LEASE_S, ttl_s=2.0)
        self.lender = Lender(self.cluster.rpc, CAPACITY, self.cluster.ttl_s)
        self.cluster.await_nodes(1)
        self.link = Relay(self.cluster.rpc)
        self.presser, self.pressed = self.cluster.client, itertools.count()
        self.reader = self.cluster.new_client(timeout_s=5.0)
        self.cluster.rpc, straight = self.link.endpoint, self.cluster.rpc
        self.cut_off = self.cluster.new_client(timeout_s=5.0)
        self.cluster.rpc = straight

    def read(self, leases, read, *arguments, then=lambda: None):
        """Read over a slow link; return what came.

        Once so many leases have been granted something happens, and then all of the memory is used
        again until the read has ended.
        """
        eventually(lambda: self.presser.stats().leases == 0, "nothing else is being read")
        self.lender.relay.slow_answers(RATE)
        with ThreadPoolExecutor(1) as pool, self._going_on():
            value = pool.submit(read, *arguments)
            eventually(
                lambda: value.done() or self.presser.stats().leases == leases, "it is being read"
            )
            assert not value.done(), value
            then()
            while not value.done():
                assert self.presser.put(f"press-{next(self.pressed)}", b"\xff" * 64 * KIB)
        return value.result()

    @contextmanager
    def _going_on(self):
        """In the end all links are as they were."""
        try:
            yield
        finally:
            self.lender.relay.slow_answers(float("inf"))
            self.lender.relay.resume()
            self.link.resume()

    def close(self):
        self.lender.relay.resume()
        self.cluster.close()
        self.link.close()
        self.lender.close()


@pytest.fixture(scope="module")
def site():
    site = Site()
    yield site
    site.close()


def put_all(site):
    """Put them anew: one large object, and many small ones."""
    sizes = {"large": LARGE} | dict.fromkeys(KEYS, SMALL)  # it makes room around it
    site.presser.batch_remove(sizes)
    assert all(site.presser.batch_put([(key, content(key, sizes[key])) for key in sizes]))


def get_parts(client, key):
    """Read it a mebibyte at a time."""
    memory = client.engine.create_segment(LARGE)
    with client.open_read([key]) as reader:
        parts = [
            reader.read(0, at, array("Q", [memory.address + at]), array("Q", [MIB]))
            for at in range(0, LARGE, MIB)
        ]
    value = bytes(memory.buffer)
    memory.close()
    return value if all(parts) else None


def get_scattered(client, key):
    """Read it into memory in two runs."""
    memory = client.engine.create_segment(LARGE)
    runs = array("Q", [memory.address + MIB, memory.address])
    size = client.get_into_memory(key, runs, array("Q", [LARGE - MIB, MIB]))
    value = bytes(memory.buffer[MIB:]) + bytes(memory.buffer[:MIB])
    memory.close()
    return None if size is None else value


FORMS = {
    "get": lambda client, key: client.get(key),
    "parts": get_parts,
    "scattered": get_scattered,
}


class Watch:
    """What a client and the master have counted since it was made."""

    def __init__(self, site, client):
        self.site, self.client = site, client
        self.faults, self.stats = client.read_faults, site.presser.stats()
        self.start_s = time.monotonic()

    def assert_many_leases_long(self):
        assert time.monotonic() - self.start_s > 3 * LEASE_S
        assert self.site.presser.stats().evictions - self.stats.evictions > 100

    def counts(self, cause):
        return self.client.read_faults[cause] - self.faults[cause]


def read_in_time(site, leases, read, keys, **then):
    """Read what was put anew; return what came, and what was counted meanwhile.

    A machine that stands still for a whole lease makes a read miss: then it is read again, twice
    at most. Leases that are not renewed end every time.
    """
    for _ in range(3):
        put_all(site)
        watch = Watch(site, site.reader)
        value = site.read(leases, read, keys, **then)
        if watch.counts("stale") == 0:
            break
    return value, watch


@pytest.mark.parametrize("form", FORMS)
def test_a_lease_is_renewed_while_a_large_object_moves(site, form):
    value, watch = read_in_time(site, 1, lambda key: FORMS[form](site.reader, key), "large")
    assert value == content("large", LARGE)
    watch.assert_many_leases_long()
    assert site.reader.read_faults == watch.faults


def test_leases_of_five_thousand_keys_are_renewed_while_they_move(site):
    values, watch = read_in_time(site, MESSAGES, site.reader.batch_get, KEYS)
    assert values == [content(key, SMALL) for key in KEYS]
    watch.assert_many_leases_long()
    assert site.reader.read_faults == watch.faults


def test_a_link_that_stands_still_for_longer_than_a_lease_gives_all_bytes_in_the_end(site):
    def stand_still():
        site.lender.relay.hold_answers()
        end = time.monotonic() + 4 * LEASE_S
        eventually(lambda: time.monotonic() > end, "it stands still")
        assert site.presser.stats().leases == 1
        site.lender.relay.resume()

    value, watch = read_in_time(site, 1, site.reader.get, "large", then=stand_still)
    assert value == content("large", LARGE)
    watch.assert_many_leases_long()


def await_heard_again(site):
    eventually(lambda: site.cut_off.put(f"again-{time.monotonic()}", b"x"), "it is heard again")


@pytest.mark.parametrize("form", FORMS)
def test_a_lease_that_cannot_be_renewed_ends_in_a_miss(site, form):
    put_all(site)
    watch = Watch(site, site.cut_off)
    assert site.read(1, FORMS[form], site.cut_off, "large", then=site.link.hold_questions) is None
    await_heard_again(site)
    assert watch.counts("stale") >= 1
    assert watch.counts("corrupt") == site.presser.stats().corrupt == 0


def test_of_many_keys_whose_leases_cannot_be_renewed_each_is_right_or_a_miss(site):
    put_all(site)
    watch = Watch(site, site.cut_off)
    values = site.read(MESSAGES, site.cut_off.batch_get, KEYS, then=site.link.hold_questions)
    await_heard_again(site)
    pairs = zip(KEYS, values, strict=True)
    assert [key for key, value in pairs if value not in (None, content(key, SMALL))] == []
    assert values.count(None) > 1000
    assert watch.counts("stale") > 1000
    assert watch.counts("corrupt") == site.presser.stats().corrupt == 0
