"""One row of a sweep: memory on both sides, the calls on it, and what is checked of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from mooncake_core.errors import ChecksumMismatch
from mooncake_core.te_bench.control import Control, Done, Fill, Take, Taken, Verified, Verify
from mooncake_core.te_bench.plan import Case, Layout
from mooncake_core.te_bench.verify import fill_local, wrong_local
from mooncake_core.transfer import RemoteSegment, TransferEngine

Call = Callable[[], None]


class Strand:
    """What one thread does in one direction, in a region of its own.

    Args:
        operation: read or write.
        layout: of the region, on both sides.
        offset: of the region in both segments.
        local: the region here.
        calls: one for each slot.
    """

    def __init__(
        self,
        operation: Literal["read", "write"],
        layout: Layout,
        offset: int,
        *,
        local: memoryview,
        calls: list[Call],
    ) -> None:
        self.operation = operation
        self.layout = layout
        self.calls = calls
        self.offset = offset
        self.local = local

    def arm(self, control: Control, seed: int) -> None:
        """Give the source the pattern of `seed`, and the other side its complement."""
        here, there = (seed, seed ^ 1) if self.operation == "write" else (seed ^ 1, seed)
        fill_local(self.local, self.layout, here, self.offset)
        size = self.layout.size_bytes
        control.ask(Fill(offset=self.offset, size_bytes=size, seed=there), Done)

    def check(self, control: Control, seed: int, calls: int) -> None:
        """Look at every byte after so many calls from the first slot on.

        Raises:
            ChecksumMismatch: one is not what it should be.
        """
        pieces = min(calls, self.layout.slots) * self.layout.batch
        wanted = Verify(offset=self.offset, layout=self.layout, seed=seed, pieces=pieces)
        if self.operation == "read":
            wrong = wrong_local(self.local, wanted)
        else:
            wrong = control.ask(wanted, Verified).wrong
        if wrong:
            raise ChecksumMismatch(f"{self.operation}: {wrong}")


class Row:
    """A case's memory and calls. `with` frees the memory.

    Args:
        engine: of this process.
        control: of the target, whose segment this takes.
        case: what is measured.
        layout: of each region.
        is_prepared: make each call a prepared transfer.
    """

    def __init__(
        self,
        engine: TransferEngine,
        control: Control,
        case: Case,
        layout: Layout,
        *,
        is_prepared: bool = False,
    ) -> None:
        self._is_prepared = is_prepared
        self.case = case
        self.layout = layout
        size = case.regions * layout.size_bytes
        self._local = engine.create_segment(size)
        taken = control.ask(Take(size_bytes=size), Taken)
        self.remote: RemoteSegment = engine.open_segment(control.welcome.engine, taken.segment_id)
        self.workers = [list(self._strands(thread)) for thread in range(case.threads)]
        """The strands of each thread."""

    @property
    def strands(self) -> list[Strand]:
        """Of all threads."""
        return [strand for worker in self.workers for strand in worker]

    def close(self) -> None:
        """Free the memory on this side; the target frees its own with the next segment taken."""
        self.workers = []
        self.remote.close()
        self._local.close()

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _strands(self, thread: int) -> Iterator[Strand]:
        operations, size = self.case.operations, self.layout.size_bytes
        places = self.layout.places()
        for index, operation in enumerate(operations):
            offset = (thread * len(operations) + index) * size
            offsets = array("Q", (offset + place for place in places))
            yield Strand(
                operation,
                self.layout,
                offset,
                local=self._local.buffer[offset : offset + size],
                calls=[
                    self._call(operation, offset + first * self.layout.block_bytes, batch)
                    for first, batch in self._slots(offsets)
                ],
            )

    def _slots(self, offsets: array[int]) -> Iterator[tuple[int, array[int]]]:
        """Yield the number of each slot's first piece, and its pieces' offsets at the target."""
        batch = self.layout.batch
        for first in range(0, len(offsets), batch):
            yield first, offsets[first : first + batch]

    def _call(
        self, operation: Literal["read", "write"], local_offset: int, offsets: array[int]
    ) -> Call:
        size, first = self.layout.block_bytes, self._local.address + local_offset
        addresses = array("Q", range(first, first + len(offsets) * size, size))
        batch = (addresses, offsets, array("Q", [size]) * len(offsets))
        remote, is_read = self.remote, operation == "read"
        if self._is_prepared:
            return (remote.prepare_read if is_read else remote.prepare_write)(*batch).run
        return partial(remote.read if is_read else remote.write, *batch)
