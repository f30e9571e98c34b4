"""Whether every byte is the one that should be there.

Before a pass both sides hold complementary patterns: the source that of the pass's seed, the other
side its complement, which differs in each byte. A byte that is wrong, was never moved, or was moved
where none belongs, shows. Where a byte is in the target's segment is where it is in the pattern, so
that no two threads or directions have the same bytes. Seeds are even and never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooncake_core.native import _native
from mooncake_core.te_bench.control import Fill, Verify
from mooncake_core.te_bench.plan import Layout


def fill_local(region: memoryview, layout: Layout, seed: int, offset: int) -> None:
    """Fill a region whose pieces lie one after the other with what belongs to each.

    Args:
        region: of the initiator.
        layout: of both sides.
        seed: of the pattern.
        offset: of the target's region in its segment.
    """
    size = layout.block_bytes
    for piece, place in enumerate(layout.places()):
        _native.fill_pattern(region[piece * size : (piece + 1) * size], seed, offset + place)


def fill_scattered(region: memoryview, wanted: Fill) -> None:
    """Fill a target's region: there the pattern lies in one."""
    _native.fill_pattern(region, wanted.seed, wanted.offset)


def wrong_local(region: memoryview, wanted: Verify) -> str:
    """Return what is wrong with the initiator's side of a region; "": nothing."""
    layout = wanted.layout
    return _wrong(region, wanted, range(0, layout.size_bytes, layout.block_bytes))


def wrong_scattered(region: memoryview, wanted: Verify) -> str:
    """Return what is wrong with a target's region; "": nothing."""
    return _wrong(region, wanted, wanted.layout.places())


def _wrong(region: memoryview, wanted: Verify, here: Iterable[int]) -> str:
    layout = wanted.layout
    for piece, (start, place) in enumerate(zip(here, layout.places(), strict=True)):
        block = region[start : start + layout.block_bytes]
        seed = wanted.seed if piece < wanted.pieces else wanted.seed ^ 1
        at = _native.first_wrong_byte(block, seed, wanted.offset + place)
        if at >= 0:
            problem = _explain(block[at], seed, wanted.offset + place + at)
            return f"byte {at} of piece {piece} {problem}"
    return ""


def _explain(found: int, seed: int, offset: int) -> str:
    right = bytearray(1)
    _native.fill_pattern(right, seed, offset)
    if found != right[0] ^ 0xFF:
        return f"is {found:#04x} instead of {right[0]:#04x}"
    return "was never moved" if seed % 2 == 0 else "was moved, and belongs to no batch"
