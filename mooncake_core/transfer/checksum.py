"""CRC-32C (Castagnoli) of memory. Thread-safe; the GIL is released meanwhile."""

from __future__ import annotations

from typing import Any

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.numbers import Numbers


def crc32c(buffer: Any, value: int = 0) -> int:
    """Return the checksum of a contiguous buffer, going on from `value`, that of what came before.

    Source: RFC 3720, appendix B.4: crc32c(b"123456789") == 0xE3069283.
    """
    return _native.crc32c(buffer, value)


def crc32c_gather(addresses: Numbers, lengths: Numbers, value: int = 0) -> int:
    """Return the checksum of runs of memory, one after the other.

    Args:
        addresses: [n] uint64, of memory that stays readable until this returns. Not checked.
        lengths: [n] uint64, bytes of each run.
        value: checksum of what came before.

    Raises:
        ValueError: as many addresses as lengths are needed.
    """
    with native_errors:
        return _native.crc32c_gather(addresses, lengths, value)
