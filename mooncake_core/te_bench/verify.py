"""Whether every byte is the one that should be there.

Before a pass both sides hold complementary patterns: the source that of the pass's seed, the other
side its complement, which differs in each byte. A byte that is wrong, was never moved, or was moved
where none belongs, shows. Seeds are even and never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooncake_core.native import _native
from mooncake_core.te_bench.plan import Layout


def fill_local(region: memoryview, layout: Layout, seed: int) -> None:
    """Fill a region whose pieces lie one after the other with what belongs to each."""
    size = layout.block_bytes
    for piece, place in enumerate(layout.places()):
        _native.fill_pattern(region[piece * size : (piece + 1) * size], seed, place)


def fill_scattered(region: memoryview, seed: int) -> None:
    """Fill a target's region: there the pattern lies in one."""
    _native.fill_pattern(region, seed, 0)


def wrong_local(region: memoryview, layout: Layout, seed: int, pieces: int) -> str:
    """Return what is wrong with an initiator's region; "": nothing. See Verify."""
    here = range(0, layout.size_bytes, layout.block_bytes)
    return _wrong(region, layout, (seed, pieces), here)


def wrong_scattered(region: memoryview, layout: Layout, seed: int, pieces: int) -> str:
    """Return what is wrong with a target's region; "": nothing. See Verify."""
    return _wrong(region, layout, (seed, pieces), layout.places())


def _wrong(
    region: memoryview, layout: Layout, expected: tuple[int, int], here: Iterable[int]
) -> str:
    seed, pieces = expected
    for piece, (start, place) in enumerate(zip(here, layout.places(), strict=True)):
        block = region[start : start + layout.block_bytes]
        wanted = seed if piece < pieces else seed ^ 1
        at = _native.first_wrong_byte(block, wanted, place)
        if at >= 0:
            return f"byte {at} of piece {piece} {_explain(block[at], wanted, place + at)}"
    return ""


def _explain(found: int, wanted: int, offset: int) -> str:
    right = bytearray(1)
    _native.fill_pattern(right, wanted, offset)
    if found != right[0] ^ 0xFF:
        return f"is {found:#04x} instead of {right[0]:#04x}"
    return "was never moved" if wanted % 2 == 0 else "was moved, and belongs to no batch"
