"""The store as a process uses it.

All calls block with the GIL released and may be made by any thread. A miss, and a key that is there
already, are answers; while the master is away calls raise StoreUnavailable, and the client comes
back by itself when the master does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

from mooncake_core.config import StoreClientConfig
from mooncake_core.native import _native, native_errors
from mooncake_core.store.stats import ClusterStats, decode_stats
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.numbers import Numbers

Key = bytes | str
Buffer = bytes | bytearray | memoryview


def _raw(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


class ObjectWriter:
    """One object that is being written. As a context manager it aborts unless it was committed.

    Its key is taken, and invisible, until it ends. Parts may be written in any order and by several
    threads, each once.
    """

    def __init__(self, native: _native.StoreWriter) -> None:
        self._native = native

    @property
    def part_count(self) -> int:
        """How many parts the object has; at least 1."""
        return int(self._native.part_count)

    @property
    def replicas(self) -> int:
        """Copies that were granted; fewer than asked for where nodes are few."""
        return int(self._native.copy_count)

    def write_part(self, part: int, addresses: Numbers, lengths: Numbers) -> None:
        """Gather local memory, in order, into part `part` of every copy.

        Args:
            part: 0-based; each has `part_bytes` bytes, the last one what is left.
            addresses: array("Q"), each inside a registered buffer or an own segment.
            lengths: array("Q"), one an address; they sum up to the part's size.

        Raises:
            StoreUnavailable, TransferError: no copy could be written; the put has failed.
        """
        with native_errors:
            self._native.write_part(part, addresses, lengths)

    def commit(self) -> None:
        """Make the object visible to all.

        Raises:
            StoreUnavailable: the master is away or has given up this put. It is then not stored,
                or, if only its answer was lost, stored as it should be.
        """
        with native_errors:
            self._native.commit()

    def abort(self) -> None:
        """Forget the object. Waits for parts that are being written; again is harmless."""
        self._native.abort()

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()


class ObjectReader:
    """Objects that are being read, protected by a lease that is renewed until it is closed."""

    def __init__(self, native: _native.StoreReader) -> None:
        self._native = native
        self.count: int = native.count
        """How many leading keys of those asked for are present."""
        self.sizes: list[int] = native.sizes
        """Bytes of each of them."""

    def read_part(self, index: int, part: int, addresses: Numbers, lengths: Numbers) -> bool:
        """Scatter part `part` of object `index` into local memory, in order.

        True means that the memory holds what was committed: checksums and generation agree. False
        is a miss (lost, corrupt, stale); what is in the memory is not to be used.
        """
        return self.read_parts(part, [(index, addresses, lengths)])

    def read_parts(self, part: int, pieces: Sequence[tuple[int, Numbers, Numbers]]) -> bool:
        """Read one part of several objects, (index, addresses, lengths) each.

        False when one of them misses.
        """
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class StoreClient:
    """A process's use of the store. Values of get and put need not be registered."""

    def __init__(self, engine: TransferEngine, config: StoreClientConfig) -> None:
        """Start a session in the background; the master may come later."""
        self._engine = engine
        self._native = _native.StoreClient(
            engine.native,
            master=config.master,
            replicas=config.replicas,
            timeout_s=config.timeout_s,
        )

    def put(self, key: Key, value: Buffer) -> bool:
        """Store a value; False when the key is there already or is being written."""
        return self.batch_put([(key, value)])[0]

    def get(self, key: Key) -> bytes | None:
        """Return the value, or None: a miss."""
        return self.batch_get([key])[0]

    def get_into(self, key: Key, buffer: bytearray | memoryview) -> int | None:
        """Read the value into the start of `buffer` and return its size, or None: a miss.

        Raises:
            ValueError: the buffer is too small.
        """
        with native_errors:
            size: int | None = self._native.get_into(_raw(key), buffer)
            return size

    def exists(self, key: Key) -> bool:
        """Return whether the key is committed. Takes no lease: it may be gone a moment later."""
        return self.batch_exists([key])[0]

    def remove(self, key: Key) -> bool:
        """Make the key invisible at once; False when it was not there or is being written."""
        return self.batch_remove([key])[0]

    def batch_put(self, items: Iterable[tuple[Key, Buffer]]) -> list[bool]:
        """Store several values with two questions to the master; as `put` for each.

        Raises:
            OutOfSpace, StoreUnavailable, TransferError: the first fault, after the other items
                have been stored or not.
        """
        pairs = [(_raw(key), value) for key, value in items]
        with native_errors:
            stored: list[bool] = self._native.put(
                [key for key, _ in pairs], [value for _, value in pairs]
            )
            return stored

    def batch_get(self, keys: Iterable[Key]) -> list[bytes | None]:
        """Return the value of each key, or None where it misses."""
        with native_errors:
            values: list[bytes | None] = self._native.get([_raw(key) for key in keys])
            return values

    def batch_exists(self, keys: Iterable[Key]) -> list[bool]:
        """Return for each key whether it is committed."""
        with native_errors:
            there: list[bool] = self._native.exists([_raw(key) for key in keys])
            return there

    def batch_remove(self, keys: Iterable[Key]) -> list[bool]:
        """Remove each key; as `remove` for each."""
        with native_errors:
            removed: list[bool] = self._native.remove([_raw(key) for key in keys])
            return removed

    def match_prefix(self, keys: Iterable[Key]) -> int:
        """Return how many leading keys exist. One question, no lease."""
        with native_errors:
            return int(self._native.match_prefix([_raw(key) for key in keys]))

    def open_write(
        self, key: Key, *, size_bytes: int, part_bytes: int = 0, replicas: int | None = None
    ) -> ObjectWriter | None:
        """Start an object that is written part by part; None when it is there or being written.

        Args:
            key: any bytes, at most 64 KiB.
            size_bytes: of the whole object.
            part_bytes: of each part but the last; 0: one part.
            replicas: copies on distinct nodes; None: as configured.

        Raises:
            OutOfSpace: nothing evictable is left that would make room.
        """
        with native_errors:
            native = self._native.open_write(
                _raw(key), size_bytes=size_bytes, part_bytes=part_bytes, replicas=replicas or 0
            )
        return ObjectWriter(native) if native is not None else None

    def open_read(self, keys: Iterable[Key]) -> ObjectReader:
        """Lease the longest leading run of `keys` that is present; `count` may be 0."""
        with native_errors:
            return ObjectReader(self._native.open_read([_raw(key) for key in keys]))

    def stats(self) -> ClusterStats:
        """Return what the master says about the whole store."""
        with native_errors:
            return decode_stats(self._native.stats())

    @property
    def epoch(self) -> int:
        """Of the master last spoken to; 0: none yet."""
        return int(self._native.epoch)

    @property
    def read_faults(self) -> dict[str, int]:
        """Reads of this client that missed although the key was found, by cause."""
        corrupt, stale, unreachable = self._native.read_counters
        return {"corrupt": corrupt, "stale": stale, "unreachable": unreachable}

    def close(self) -> None:
        """End the session. Readers and writers that are open end with it."""
        self._native.close()
