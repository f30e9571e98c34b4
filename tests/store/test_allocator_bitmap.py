"""The allocator against a map of the memory, a byte a unit, over a million operations."""

from __future__ import annotations

import array
import random

import pytest

from mooncake_core.native import _native

UNIT = 64
UNITS = 1 << 15
OPERATIONS = 1_000_000


def operations(rng, count, sizes):
    """Sizes in bytes; -n frees what operation n - 1 was granted."""
    plan, live = array.array("q"), []
    for at in range(count):
        if live and rng.random() < 0.49:
            pick = rng.randrange(len(live))
            live[pick], live[-1] = live[-1], live[pick]
            plan.append(-live.pop() - 1)
        else:
            plan.append(rng.choice(sizes))
            live.append(at)
    return plan


class Bitmap:
    """Which units are used; a run of free ones is found as bytes are."""

    def __init__(self):
        self.used = bytearray(UNITS)
        self.used_units = 0

    def take(self, start, units):
        assert self.used.find(1, start, start + units) < 0, f"{start} to {start + units} overlaps"
        assert start + units <= UNITS
        self.used[start : start + units] = b"\1" * units
        self.used_units += units

    def give(self, start, units):
        self.used[start : start + units] = bytes(units)
        self.used_units -= units

    def has_run(self, units):
        return bytes(units) in self.used

    def largest_run(self):
        return max(len(run) for run in bytes(self.used).split(b"\1"))


def follow(plan, offsets):
    """Check every grant and every refusal; return the map and the number of refusals."""
    bitmap, refused = Bitmap(), 0
    for size, offset in zip(plan, offsets, strict=True):
        units = -(-size // UNIT)
        if size < 0:
            if offsets[-size - 1] >= 0:
                bitmap.give(offsets[-size - 1] // UNIT, -(-plan[-size - 1] // UNIT))
        elif offset >= 0:
            bitmap.take(offset // UNIT, units)
        else:
            refused += 1
            # Within a class not every block is looked at; larger by 1/32 is always found.
            assert not bitmap.has_run(units + units // 32 + 1), f"{units} units were refused"
    return bitmap, refused


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [
        (1, [UNIT * units for units in (1, 2, 3, 5, 8, 17, 40, 65, 129)]),
        (2, [int(2 ** (6 + step / 97)) for step in range(1000)]),
    ],
    ids=["few sizes", "a thousand sizes"],
)
def test_half_a_million_operations_leave_the_memory_as_the_map_says(seed, sizes, record_property):
    plan = operations(random.Random(seed), OPERATIONS // 2, sizes)
    offsets = array.array("q", [0]) * len(plan)
    pool = _native.Allocator(UNITS * UNIT)
    pool.replay(plan, offsets)
    pool.check()
    bitmap, refused = follow(plan, offsets)
    free, largest = UNITS - bitmap.used_units, bitmap.largest_run()
    assert refused > 1000, "the pool was never full"
    assert pool.used_bytes == bitmap.used_units * UNIT
    assert largest * 31 // 32 * UNIT <= pool.largest_free_extent <= largest * UNIT
    assert pool.fragmentation == pytest.approx(1 - pool.largest_free_extent / (free * UNIT))
    record_property("fragmentation", pool.fragmentation)
    print(f"{refused} refused; {bitmap.used_units / UNITS:.1%} used, {pool.fragmentation:.1%} of "
          f"the free memory is not in the largest extent of {largest} units")  # fmt: skip
