"""How a thread of the benchmark calls the store: the only place that knows the client's calls.

Values lie in an arena of registered memory, one slot for each call, walked through in turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from mooncake_core.store import StoreClient
from mooncake_core.transfer import TransferEngine

Value = bytes | memoryview
MAX_SLOTS = 4096
"""Tiny values walk through less memory."""


class Slot:
    """Memory of the values of one call.

    Args:
        memory: of `batch` values, one after the other.
        address: of its first byte, where it is registered.
        size_bytes: of one value.
    """

    def __init__(self, memory: memoryview, address: int, size_bytes: int) -> None:
        starts = range(0, len(memory), size_bytes)
        self.views = [memory[start : start + size_bytes] for start in starts]
        self.addresses = array("Q", (address + start for start in starts))
        self.lengths = array("Q", [size_bytes]) * len(starts)


class Arena:
    """The slots of one thread; close() gives the memory back.

    Args:
        engine: that the memory is registered with; None: plain memory.
        size_bytes: of one value.
        batch: values of a slot.
        memory_bytes: of all slots, about; one slot at least.
    """

    def __init__(
        self, engine: TransferEngine | None, size_bytes: int, *, batch: int, memory_bytes: int
    ) -> None:
        span = size_bytes * batch
        total = span * max(1, min(MAX_SLOTS, memory_bytes // span))
        self._segment = engine.create_segment(total) if engine is not None else None
        segment = self._segment
        memory = memoryview(bytearray(total)) if segment is None else segment.buffer
        address = 0 if segment is None else segment.address
        self.slots = [
            Slot(memory[start : start + span], address + start, size_bytes)
            for start in range(0, total, span)
        ]

    def close(self) -> None:
        """Give the memory back once nothing uses it."""
        if self._segment is not None:
            self._segment.close()


class Access(Protocol):
    """One way to call the store; batches as long as the keys."""

    def put(self, keys: Sequence[bytes], slot: Slot) -> list[bool]:
        """Store the slot's values; False where a key is there already."""

    def get(self, keys: Sequence[bytes], slot: Slot) -> list[Value | None]:
        """Return the value of each key, in the slot or elsewhere; None: a miss."""


class ZeroCopy:
    """Values are read and written where they lie."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def put(self, keys: Sequence[bytes], slot: Slot) -> list[bool]:
        """See Access."""
        lengths = slot.lengths
        if len(keys) == 1:
            return [bool(self._client.put_from(keys[0], slot.addresses, lengths))]
        return list(map(bool, self._client.batch_put_from(keys, slot.addresses, lengths)))

    def get(self, keys: Sequence[bytes], slot: Slot) -> list[Value | None]:
        """See Access."""
        sizes = self._client.batch_get_into(keys, slot.addresses, slot.lengths)
        return [
            None if size is None else view[:size]
            for size, view in zip(sizes, slot.views, strict=True)
        ]


class PlainBytes:
    """Values come from memory that nobody registered, and are returned as new objects."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def put(self, keys: Sequence[bytes], slot: Slot) -> list[bool]:
        """See Access."""
        return list(map(bool, self._client.batch_put(zip(keys, slot.views, strict=True))))

    def get(self, keys: Sequence[bytes], slot: Slot) -> list[Value | None]:
        """See Access."""
        return list(self._client.batch_get(keys))
