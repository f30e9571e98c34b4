"""What goes and what stays when a store is filled over and over, as a client sees it."""

from __future__ import annotations

import itertools
import random
import time
from collections import OrderedDict
from contextlib import closing

import pytest

from mooncake_core.errors import OutOfSpace
from mooncake_core.store import Link, PutOptions
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

KIB, MIB = 1 << 10, 1 << 20
SIZE = 64 * KIB - 64  # with its header 64 KiB
NODES, CAPACITY = 2, 4 * MIB
PLACES = NODES * CAPACITY // (64 * KIB)
HARD = PutOptions(pin="hard")
SOFT = PutOptions(pin="soft", soft_pin_s=600.0)


def content(key, size=SIZE):
    return random.Random(repr(key)).randbytes(size)


@pytest.fixture(scope="module")
def shared():
    """No node is silent for so long on a loaded machine that its objects are not read."""
    options = {"capacity": "4 MiB", "stripe": "512 KiB", "ttl_s": 10.0}
    with closing(Cluster("shm", nodes=NODES, **options)) as cluster:
        yield cluster


@pytest.fixture
def store(shared):
    """An empty one."""
    shared.client.batch_remove([one.key for one in shared.client.list_objects()])
    eventually(lambda: shared.client.stats().used_bytes == 0, "it is empty")
    return shared


def over_fill(client, times, prefix="press"):
    """Put so many times what there is room for; all of it is stored."""
    for number in range(times * PLACES):
        assert client.put(f"{prefix}-{number}", content(number))


def put_chain(client, name, blocks):
    """Put a chain, block by block as prefill does, and return its keys."""
    keys = [f"{name}/{depth}" for depth in range(blocks)]
    for depth, key in enumerate(keys):
        link = Link(parent=keys[depth - 1] if depth else b"", depth=depth)
        assert client.put(key, content(key), link=link)
    return keys


@pytest.mark.parametrize("pressure", [20, 60, 100])
def test_what_is_left_of_each_chain_is_a_prefix_that_can_be_read(store, pressure):
    client, blocks = store.client, 30
    chains = [put_chain(client, f"chain-{number}", blocks) for number in range(4)]
    for number in range(pressure):
        assert client.put(f"press-{number}", content(number))
    left = 0
    for keys in chains:
        matched = client.match_prefix(keys)
        assert store.there(*keys) == [True] * matched + [False] * (blocks - matched)
        assert client.batch_get(keys[:matched]) == [content(key) for key in keys[:matched]]
        left += matched
    due = PLACES - pressure
    assert due - 2 * len(chains) <= left <= due


def test_the_end_of_a_long_chain_goes_and_a_hundred_blocks_lose_thirty(store):
    client = store.client
    keys = put_chain(client, "long", 100)
    for number in range(PLACES - 100 + 30):
        assert client.put(f"press-{number}", content(number))
    matched = client.match_prefix(keys)
    assert 68 <= matched <= 72
    assert store.there(*keys) == [True] * matched + [False] * (100 - matched)


@pytest.mark.parametrize("end", ["remove", "evict"])
def test_four_ranks_of_a_block_live_and_die_together(store, end):
    client, ranks = store.client, [f"rank-{rank}" for rank in range(4)]
    links = [Link(group="block", group_size=4)] * 4
    for rank in ranks:
        assert client.match_prefix(ranks) == 0
        assert client.put(rank, content(rank), link=links[0])
    assert client.match_prefix(ranks) == 4
    assert client.batch_get(ranks) == [content(rank) for rank in ranks]
    if end == "remove":
        assert client.remove(ranks[2])
        eventually(lambda: client.stats().used_bytes == 0, "the others are freed")
    else:
        number = itertools.count()
        while all(store.there(*ranks)):
            assert client.put(f"press-{next(number)}", content("press"))
    assert store.there(*ranks) == [False] * 4
    assert client.batch_get(ranks) == [None] * 4
    assert client.stats().groups == 0
    assert all(client.batch_put([(rank, content(rank)) for rank in ranks], links=links))
    assert client.batch_get(ranks) == [content(rank) for rank in ranks]


def test_a_hard_pin_survives_ten_times_the_pool_and_a_soft_one_lasts_while_others_can_go(store):
    client = store.client
    hard = [f"hard-{number}" for number in range(10)]
    soft = [f"soft-{number}" for number in range(10)]
    assert all(client.batch_put([(key, content(key)) for key in hard], options=HARD))
    assert all(client.batch_put([(key, content(key)) for key in soft], options=SOFT))
    over_fill(client, 10)
    stats = client.stats()
    assert stats.hard_pinned_bytes == stats.soft_pinned_bytes == 10 * 64 * KIB
    assert stats.used_bytes <= stats.capacity_bytes
    keys = hard + soft
    assert client.batch_get(keys) == [content(key) for key in keys]
    fill_with_pins(client)
    assert store.there(*keys) == [True] * 10 + [False] * 10
    assert client.batch_get(hard) == [content(key) for key in hard]


def fill_with_pins(client):
    """Put hard-pinned objects until there is no room for one more; return the refusal."""
    for number in range(2 * PLACES):
        try:
            assert client.put(f"pinned-{number}", content(number), options=HARD)
        except OutOfSpace as refusal:
            return refusal
    raise AssertionError("pinned objects have gone")


def test_where_everything_is_pinned_a_put_is_refused_at_once_with_the_figures(store):
    client = store.client
    error = fill_with_pins(client)
    start = time.monotonic()
    for _ in range(20):
        with pytest.raises(OutOfSpace):
            client.put("one more", content("one more"))
    assert (time.monotonic() - start) / 20 < 0.1
    assert error.capacity_bytes == error.used_bytes == error.pinned_bytes == NODES * CAPACITY
    assert (error.evictable_bytes, error.quarantined_bytes) == (0, 0)
    assert error.largest_free_extent_bytes == 0
    assert not client.exists("one more")
    assert client.unpin(["pinned-3"]) == [True]
    assert client.put("one more", content("one more"))
    assert store.there("pinned-3", "one more") == [False, True]


def test_bytes_that_are_softly_pinned_are_bounded_by_the_pool_and_end_with_their_time(store):
    client = store.client
    options = PutOptions(pin="soft", soft_pin_s=1.0)
    for number in range(3 * PLACES):
        assert client.put(f"soft-{number}", content(number), options=options)
        assert client.stats().soft_pinned_bytes <= NODES * CAPACITY
    eventually(lambda: client.stats().soft_pinned_bytes == 0, "their time is over")
    over_fill(client, 2)
    assert True not in store.there(*(f"soft-{number}" for number in range(3 * PLACES)))


@pytest.mark.parametrize(("sizes", "least"), [((SIZE, SIZE), 0.95), ((1, 2 * SIZE), 0.9)])
def test_hits_under_pressure_are_nearly_those_of_a_plain_lru(store, sizes, least):
    """Chains of 1 to 8 blocks, some more popular than others, asked for as prefill does.

    The oracle's memory has no gaps. With blocks of all sizes in a small pool the store's has, and
    neighbours go that are not the oldest.
    """
    client, rng = store.client, random.Random(8)
    chains = [
        {f"c{name}/{depth}": rng.randint(*sizes) for depth in range(rng.randrange(1, 9))}
        for name in range(120)
    ]
    oracle, windows = PlainLru(), []
    for number in range(1200):
        if number % 200 == 0:
            windows.append([0, 0, 0])
        chain = chains[min(int(rng.paretovariate(0.6)), len(chains)) - 1]
        keys = list(chain)
        matched = client.match_prefix(keys)
        values = client.batch_get(keys[:matched])
        assert values == [content(key, chain[key]) for key in keys[:matched]]
        counts = (len(keys), oracle.touch(chain), matched)
        windows[-1] = [sum(pair) for pair in zip(windows[-1], counts, strict=True)]
        links = [Link(parent=keys[at - 1] if at else b"", depth=at) for at in range(len(keys))]
        missed = [(key, content(key, chain[key])) for key in keys[matched:]]
        assert all(client.batch_put(missed, links=links[matched:]))
    for asked, oracle_hits, hits in windows:
        assert asked / 4 < oracle_hits < asked * 0.95, windows
        assert hits >= least * oracle_hits, windows


class PlainLru:
    """Whole objects, of which the least recently used one goes."""

    def __init__(self):
        self.sizes, self.used = OrderedDict(), 0

    def touch(self, chain):
        """Use all blocks of a chain; return how many leading ones were there."""
        hits = next((at for at, key in enumerate(chain) if key not in self.sizes), len(chain))
        for key, size in chain.items():
            self.used += 0 if key in self.sizes else size + 64
            self.sizes[key] = size
            self.sizes.move_to_end(key)
        while self.used > NODES * CAPACITY:
            self.used -= self.sizes.popitem(last=False)[1] + 64
        return hits
