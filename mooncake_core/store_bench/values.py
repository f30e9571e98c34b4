"""The bytes of a value, which follow from its key and where they are in it."""

from __future__ import annotations

from collections.abc import Sequence

from mooncake_core.native import _native
from mooncake_core.store_bench.client import Slot, Value
from mooncake_core.store_bench.plan import pattern_of


def fill(slot: Slot, keys: Sequence[bytes]) -> None:
    """Make the slot's values those of `keys`."""
    for key, view in zip(keys, slot.views, strict=False):
        _native.fill_pattern(view, pattern_of(key))


def wipe(slot: Slot, keys: Sequence[bytes]) -> None:
    """Make every byte another than that of the values of `keys`."""
    for key, view in zip(keys, slot.views, strict=False):
        _native.fill_pattern(view, pattern_of(key) ^ 1)


def find_wrong(key: bytes, value: Value, size_bytes: int) -> str:
    """Return what is wrong with a value that was read; "": nothing."""
    if len(value) != size_bytes:
        return f"{key!r} has {len(value)} bytes instead of {size_bytes}"
    seed = pattern_of(key)
    at: int = _native.first_wrong_byte(value, seed)
    if at < 0:
        return ""
    right = bytearray(1)
    _native.fill_pattern(right, seed, at)
    return f"byte {at} of {key!r} is {value[at]:#04x} instead of {right[0]:#04x}"
