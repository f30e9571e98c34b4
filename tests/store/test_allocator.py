"""The extent allocator against a sorted list of holes."""

from __future__ import annotations

import random

import pytest

from mooncake_core.native import _native

UNIT = 64


class Holes:
    """The dumb twin: which bytes are free, as sorted, merged intervals."""

    def __init__(self, capacity):
        self.free = [(0, capacity)]

    def largest(self):
        return max((end - start for start, end in self.free), default=0)

    def take(self, start, size):
        for at, (low, high) in enumerate(self.free):
            if low <= start and start + size <= high:
                rest = [(low, start), (start + size, high)]
                self.free[at : at + 1] = [(a, b) for a, b in rest if a < b]
                return
        raise AssertionError(f"[{start}, {start + size}) is not free")

    def give(self, start, size):
        merged = []
        for low, high in sorted([*self.free, (start, start + size)]):
            if merged and merged[-1][1] == low:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        self.free = merged


def rounded(size):
    return -(-size // UNIT) * UNIT


def churn(seed, steps, capacity, largest, check_every=50):
    rng = random.Random(seed)
    real, twin, live = _native.Allocator(capacity), Holes(capacity), []
    used = 0
    for step in range(steps):
        if live and rng.random() < 0.48:
            offset, block, size = live.pop(rng.randrange(len(live)))
            real.free(block)
            twin.give(offset, size)
            used -= size
        else:
            size = int(2 ** rng.uniform(0, largest))
            granted = real.allocate(size)
            assert (granted is not None) == (twin.largest() >= rounded(size)), f"{seed=} {step=}"
            if granted is not None:
                twin.take(granted[0], rounded(size))
                live.append((*granted, rounded(size)))
                used += rounded(size)
        assert real.used_bytes == used
        if step % check_every == 0:
            real.check()
            assert real.largest_free_extent == twin.largest()
            rows = real.blocks()
            assert [(at, at + size) for at, size, is_free, _ in rows if is_free] == twin.free
            granted = [(at, block, size) for at, size, is_free, block in rows if not is_free]
            assert granted == sorted(live)
    for _, block, _ in live:
        real.free(block)
    assert (real.used_bytes, real.largest_free_extent) == (0, real.capacity_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_it_grants_exactly_when_a_hole_is_large_enough(seed):
    churn(seed, steps=3000, capacity=UNIT * 1024, largest=14)


def test_many_sizes_in_a_large_pool_never_overlap():
    churn(9, steps=3000, capacity=1 << 40, largest=38)


def test_the_whole_pool_is_one_extent():
    pool = _native.Allocator(1 << 20)
    offset, block = pool.allocate(1 << 20)
    assert (offset, pool.used_bytes, pool.largest_free_extent) == (0, 1 << 20, 0)
    assert pool.allocate(1) is None
    pool.free(block)
    assert pool.largest_free_extent == 1 << 20


def test_a_capacity_that_is_no_multiple_of_the_granularity_is_rounded_down():
    assert _native.Allocator(1000).capacity_bytes == 960


def test_fragmentation_is_the_share_outside_the_largest_free_extent():
    pool = _native.Allocator(UNIT * 8)
    blocks = [pool.allocate(UNIT)[1] for _ in range(8)]
    assert pool.fragmentation == 0
    for index in (0, 2, 3, 4):
        pool.free(blocks[index])
    assert pool.fragmentation == pytest.approx(1 / 4)


def test_a_freed_block_is_joined_with_its_free_neighbours():
    pool = _native.Allocator(UNIT * 3)
    blocks = [pool.allocate(UNIT)[1] for _ in range(3)]
    pool.free(blocks[0])
    pool.free(blocks[2])
    whole = pool.free(blocks[1])
    assert pool.largest_free_extent == UNIT * 3
    assert pool.allocate(UNIT * 3) == (0, whole)


def test_the_block_that_was_freed_last_is_found_among_many_of_its_class():
    pool = _native.Allocator(1 << 24)
    sizes = [UNIT * 1025] + [UNIT * 1024] * 200
    granted = []
    for size in sizes:
        granted.append(pool.allocate(size)[1])
        pool.allocate(UNIT)
    while pool.allocate(UNIT * 1024):
        pass
    for block in reversed(granted):
        pool.free(block)
    assert pool.largest_free_extent == UNIT * 1025
    assert pool.allocate(UNIT * 1025) is not None
