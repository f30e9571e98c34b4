"""What a store client opens: writers, readers and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooncake_core.native import _native, native_errors
from mooncake_core.store.options import MAX_BYTES, check_list, check_number, check_type
from mooncake_core.transfer.numbers import Numbers, wrong_numbers


class ObjectWriter:
    """One object that is being written. As a context manager it aborts unless it was committed.

    Its key is taken, and invisible, until it ends (that of an upsert is not taken). Ranges may be
    written in any order and by several threads, each byte once. Dropping it aborts as well.
    """

    def __init__(self, native: _native.StoreWriter) -> None:
        self._native = native

    @property
    def native(self) -> _native.StoreWriter:
        """For the client."""
        return self._native

    @property
    def size_bytes(self) -> int:
        """Of the whole object."""
        return int(self._native.size_bytes)

    @property
    def part_count(self) -> int:
        """How many parts the object has; at least 1."""
        return int(self._native.part_count)

    @property
    def replicas(self) -> int:
        """Copies that are written: fewer than asked for where nodes are few, or have failed."""
        with native_errors:
            return int(self._native.copy_count)

    def write(self, offset: int, addresses: Numbers, lengths: Numbers) -> None:
        """Gather local memory, in order, into the object's bytes from `offset` on, of every copy.

        Args:
            offset: in the object.
            addresses: array("Q"), each inside a registered buffer or an own segment.
            lengths: array("Q"), one an address.

        Raises:
            ValueError: some of these bytes were written before, or lie outside the object.
            StoreUnavailable, TransferError: no copy could be written; the put has failed.
        """
        check_number("offset", offset, 0, MAX_BYTES)
        try:
            with native_errors:
                self._native.write(offset, addresses, lengths)
        except TypeError as error:
            raise wrong_numbers(error, addresses=addresses, lengths=lengths) from error

    def write_part(self, part: int, addresses: Numbers, lengths: Numbers) -> None:
        """Gather local memory into part `part`: a range that is named by its number.

        Args:
            part: 0-based; each has `part_bytes` bytes, the last one what is left.
            addresses: as for `write`.
            lengths: as for `write`; they sum up to the part's size.
        """
        check_number("part", part, 0, MAX_BYTES)
        try:
            with native_errors:
                self._native.write_part(part, addresses, lengths)
        except TypeError as error:
            raise wrong_numbers(error, addresses=addresses, lengths=lengths) from error

    def commit(self) -> bool:
        """Make the object visible to all.

        Returns:
            False: another value has taken the key meanwhile, by an upsert or with a node that came
            back. That one is there, and this one is gone.

        Raises:
            ValueError: bytes are missing; the message names the first.
            GroupGone: another member of its group was removed or evicted meanwhile.
            StoreUnavailable: the master is away or has given up this put. It is then not stored,
                or, if only its answer was lost, stored as it should be.
        """
        with native_errors:
            return self._native.commit()

    def abort(self) -> None:
        """Forget the object. Waits for ranges that are being written; again is harmless."""
        self._native.abort()

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


def native_writers(writers: Iterable[ObjectWriter]) -> list[_native.StoreWriter]:
    """Return what the client hands on, or raise TypeError for what is no writer."""
    check_list("writers", writers, "ObjectWriters")
    found = list(writers)
    for writer in found:
        check_type("one of writers", writer, ObjectWriter, "an ObjectWriter")
    return [writer.native for writer in found]


class ObjectReader:
    """Objects that are being read, protected by a lease that is renewed until it is closed.

    A read answers True only when the memory holds what was committed. False is a miss (lost,
    corrupt, stale); what is in the memory is then not to be used.
    """

    def __init__(self, native: _native.StoreReader) -> None:
        self._native = native
        self.count: int = native.leading_count
        """How many leading keys of those asked for are present."""
        self.found: list[int | None] = native.sizes()
        """Bytes of each that was looked up; None: it is not there."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each of the leading `count`."""
        return [size for size in self.found[: self.count] if size is not None]

    def read(self, index: int, offset: int, addresses: Numbers, lengths: Numbers) -> bool:
        """Scatter the bytes of object `index` from `offset` on into local memory, in order.

        Chunks of 256 KiB that the range only touches are read whole, to be verified.

        Raises:
            ValueError: there is no such object, or the range lies outside it.
        """
        return self.read_ranges([(index, offset, addresses, lengths)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int, Numbers, Numbers]]) -> list[bool]:
        """Read ranges of several objects, (index, offset, addresses, lengths) each."""
        with native_errors:
            return list(self._native.read_ranges(list(ranges)))

    def read_part(self, index: int, part: int, addresses: Numbers, lengths: Numbers) -> bool:
        """Scatter part `part` of object `index` into local memory, in order."""
        return self.read_parts(part, [(index, addresses, lengths)])

    def read_parts(self, part: int, pieces: Sequence[tuple[int, Numbers, Numbers]]) -> bool:
        """Read one part of several objects, (index, addresses, lengths) each.

        False when one of them misses.
        """
        check_number("part", part, 0, MAX_BYTES)
        with native_errors:
            return bool(self._native.read_parts(part, list(pieces)))

    def check_valid(self) -> None:
        """Raise StaleEpoch or LeaseExpired when nothing can be read any more."""
        with native_errors:
            self._native.check_valid()

    def close(self) -> None:
        """End the lease. Again is harmless."""
        self._native.close()

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ObjectView:
    """All bytes of one object, verified, read-only: in place, which pins the object, or a copy.

    Memoryviews of `buffer` are valid until it is closed, and it cannot be closed while there are
    any. Only when an exception leaves its `with` it stays until the last of them is gone.
    """

    def __init__(self, native: _native.StoreView) -> None:
        self._native: _native.StoreView | None = native
        self.size_bytes: int = native.size_bytes
        self.is_copy: bool = native.is_copy
        """True: nothing is pinned; the object is on another host, or is not in one run."""

    @property
    def buffer(self) -> memoryview:
        """The bytes; read-only.

        Raises:
            ValueError: it was closed.
        """
        if self._native is None:
            raise ValueError("the view was closed")
        return self._native.view()

    def close(self) -> None:
        """End the pin. Again is harmless.

        Raises:
            BufferError: there are memoryviews of it.
        """
        if self._native is not None and self._native.exports:
            raise BufferError(f"{self._native.exports} memoryviews of the object are in use")
        self._native = None

    def __enter__(self) -> ObjectView:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        self._native = None  # what is raised counts for more: the pin ends with the memoryviews
