"""The store as a process uses it.

All calls block with the GIL released and may be made by any thread. A miss, and a key that is there
already, are answers; while the master is away calls raise StoreUnavailable, and the client comes
back by itself when the master does. Whole batches cross to the native code and are asked for in
messages of up to 1,024 keys.

Memory is given by address: an array("Q") of addresses inside registered buffers or own segments,
and one of lengths; the `_from` and `_into` forms move bytes between it and the store directly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mooncake_core.config import StoreClientConfig, checked
from mooncake_core.native import _native, native_errors
from mooncake_core.store.crossing import Links, commits, native_links, native_options, results
from mooncake_core.store.described import ObjectDescription, decode_objects
from mooncake_core.store.objects import ObjectReader, ObjectView, ObjectWriter
from mooncake_core.store.options import (
    MAX_BYTES,
    MAX_PAGE,
    Key,
    Link,
    PinKind,
    PutOptions,
    PutResult,
    check_number,
    pin_number,
    pin_seconds,
)
from mooncake_core.store.stats import ClusterStats, decode_stats
from mooncake_core.store.tasks import StoreAdmin
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.numbers import Numbers

Buffer = bytes | bytearray | memoryview


class StoreClient:
    """A process's use of the store. Values of get and put need not be registered.

    Of that process only: in a fork of it every call raises TransferError, and what was opened is
    left to the parent. Make an engine and a client there, or spawn processes instead.
    """

    def __init__(self, engine: TransferEngine, config: StoreClientConfig) -> None:
        """Start a session in the background; the master may come later.

        Raises:
            ConfigError: a value of the configuration is wrong; it says which, and what is right.
        """
        if not isinstance(engine, TransferEngine):
            raise TypeError(f"engine is a {type(engine).__name__}; a TransferEngine is needed")
        config = checked(config, StoreClientConfig)
        self.engine = engine
        """Of this process; what is registered with it the store can read and write."""
        self._config = config
        self._plain = native_options(PutOptions())
        self._native = _native.StoreClient(
            engine.native,
            master=config.master,
            replicas=config.replicas,
            timeout_s=config.timeout_s,
            checksums=config.checksums,
        )

    # --- values ---

    def put(
        self,
        key: Key,
        value: Buffer,
        *,
        options: PutOptions | None = None,
        link: Link | None = None,
    ) -> PutResult:
        """Store a value; false when the key is there already or is being written.

        Raises:
            OutOfSpace: nothing evictable is left that would make room.
            TooFewNodes: `options.strict`, and there are too few.
            GroupGone: another member of its group was removed or evicted meanwhile.
            StoreUnavailable, TransferError: it could not be written, or not be committed.
        """
        links = None if link is None else [link]
        return self.batch_put([(key, value)], options=options, links=links)[0]

    def upsert(self, key: Key, value: Buffer, *, options: PutOptions | None = None) -> PutResult:
        """Store a value in place of what is there; who reads the old one goes on reading it."""
        return self.put(key, value, options=_upsert(options))

    def get(self, key: Key) -> bytes | None:
        """Return the value, or None: a miss."""
        return self.batch_get([key])[0]

    def get_range(self, key: Key, offset: int, length: int | None = None) -> bytes | None:
        """Return bytes [offset, offset + length) of the value (None: to its end); None: a miss.

        Raises:
            ValueError: they lie outside the object.
        """
        check_number("offset", offset, 0, MAX_BYTES)
        if length is not None:
            check_number("length", length, 0, MAX_BYTES)
        with native_errors:
            value: bytes | None = self._native.get_range(key, offset, length)
            return value

    def get_into(self, key: Key, buffer: bytearray | memoryview) -> int | None:
        """Read the value into the start of `buffer` and return its size, or None: a miss.

        Raises:
            ValueError: the buffer is too small.
        """
        with native_errors:
            size: int | None = self._native.get_into(key, buffer)
            return size

    def view(self, key: Key) -> ObjectView | None:
        """Return the value as read-only memory; None: a miss. The caller closes it.

        On the same host it is the store's own memory, pinned: as long as the view is open the
        object is not evicted. Elsewhere it is a copy of this process, and says so.
        """
        with native_errors:
            native = self._native.open_view(key)
        return None if native is None else ObjectView(native)

    def batch_put(
        self,
        items: Iterable[tuple[Key, Buffer]],
        *,
        options: PutOptions | None = None,
        links: Links | None = None,
    ) -> list[PutResult]:
        """Store several values; as `put` for each.

        Raises:
            OutOfSpace, StoreUnavailable, TransferError: the first fault, after all others have
                been stored or not; `results` of the error says how each has gone.
            ValueError: the same, of an item that no store would take: its key is too long, say.
        """
        pairs = list(items)
        with native_errors:
            answer = self._native.put(
                [key for key, _ in pairs],
                [value for _, value in pairs],
                self._options(options),
                native_links(links),
            )
        return results(answer)

    def batch_get(self, keys: Iterable[Key]) -> list[bytes | None]:
        """Return the value of each key, or None where it misses."""
        with native_errors:
            values: list[bytes | None] = self._native.get(keys)
            return values

    # --- registered memory ---

    def put_from(
        self,
        key: Key,
        addresses: Numbers,
        lengths: Numbers,
        *,
        options: PutOptions | None = None,
        link: Link | None = None,
    ) -> PutResult:
        """Store what the runs of memory hold, one after the other; as `put`."""
        links = None if link is None else native_links([link])
        with native_errors:
            answer = self._native.put_from(
                (key,), addresses, lengths, None, self._options(options), links
            )
        return results(answer)[0]

    def batch_put_from(
        self,
        keys: Sequence[Key],
        addresses: Numbers,
        lengths: Numbers,
        *,
        counts: Numbers | None = None,
        options: PutOptions | None = None,
        links: Links | None = None,
    ) -> list[PutResult]:
        """Store the memory of each key; as `batch_put`.

        Args:
            keys: n of them.
            addresses: array("Q"), key by key.
            lengths: array("Q"), one an address.
            counts: array("Q"), n: how many runs each key has; None: one each, a single key all.
            options: for all of them.
            links: one a key.
        """
        with native_errors:
            answer = self._native.put_from(
                keys,
                addresses,
                lengths,
                counts,
                self._options(options),
                native_links(links),
            )
        return results(answer)

    def get_into_memory(self, key: Key, addresses: Numbers, capacities: Numbers) -> int | None:
        """Scatter the value over the runs of memory, in order; as `batch_get_into`."""
        with native_errors:
            sizes = self._native.get_into_memory((key,), addresses, capacities, None)
        return sizes[0]

    def batch_get_into(
        self,
        keys: Sequence[Key],
        addresses: Numbers,
        capacities: Numbers,
        *,
        counts: Numbers | None = None,
    ) -> list[int | None]:
        """Read each value into the front of its memory and return its size, or None: a miss.

        Args:
            keys: n of them.
            addresses: array("Q"), key by key.
            capacities: array("Q"), bytes that there is room for at each address.
            counts: array("Q"), n: how many runs each key has; None: one each, a single key all.

        Raises:
            ValueError: the memory of a key that is there is too small.
        """
        with native_errors:
            return list(self._native.get_into_memory(keys, addresses, capacities, counts))

    # --- sessions ---

    def open_write(
        self,
        key: Key,
        *,
        size_bytes: int,
        part_bytes: int = 0,
        replicas: int | None = None,
        options: PutOptions | None = None,
        link: Link | None = None,
    ) -> ObjectWriter | None:
        """Start an object that is written range by range; None when it is there or being written.

        Args:
            key: any bytes, at most 64 KiB.
            size_bytes: of the whole object.
            part_bytes: of each part but the last; 0: one part. Of parts there are at most 1,024,
                and one more for each 4 KiB of the object.
            replicas: shorthand for the one of `options`.
            options: how it is to be kept.
            link: what it belongs to.

        Raises:
            OutOfSpace: nothing evictable is left that would make room.
        """
        if replicas is not None:
            options = _with_replicas(options, replicas)
        links = None if link is None else [link]
        opened = self.batch_open_write(
            [key], [size_bytes], part_bytes=part_bytes, options=options, links=links
        )[0]
        return opened if isinstance(opened, ObjectWriter) else None

    def batch_open_write(
        self,
        keys: Sequence[Key],
        sizes: Sequence[int],
        *,
        part_bytes: int = 0,
        options: PutOptions | None = None,
        links: Links | None = None,
    ) -> list[ObjectWriter | PutResult]:
        """Start several objects: a writer of each, or why there is none.

        Raises as `batch_put` does; then none is left open.
        """
        for size_bytes in sizes:
            check_number("size_bytes", size_bytes, 0, MAX_BYTES)
        check_number("part_bytes", part_bytes, 0, MAX_BYTES)
        with native_errors:
            writers, answer = self._native.open_write(
                keys,
                list(sizes),
                part_bytes,
                self._options(options),
                native_links(links),
            )
        try:
            outcomes = results(answer)
        except Exception:  # it keeps this frame alive for longer than its catcher thinks
            for writer in filter(None, writers):
                writer.abort()
            raise
        return [
            result if writer is None else ObjectWriter(writer)
            for writer, result in zip(writers, outcomes, strict=True)
        ]

    def write_ranges(
        self,
        writers: Sequence[ObjectWriter],
        offsets: Sequence[int],
        addresses: Numbers,
        lengths: Numbers,
        *,
        counts: Numbers | None = None,
    ) -> None:
        """Write a range of each object, with one batch a node; as `ObjectWriter.write`.

        Args:
            writers: n of them, of this client.
            offsets: n; where in its object each range begins.
            addresses: array("Q"), range by range.
            lengths: array("Q"), one an address.
            counts: array("Q"), n: how many runs each range has; None: one each.
        """
        with native_errors:
            self._native.write_ranges(
                [writer.native for writer in writers], list(offsets), addresses, lengths, counts
            )

    def batch_commit(self, writers: Sequence[ObjectWriter]) -> list[bool]:
        """Commit several objects of this client with one question; as `ObjectWriter.commit`.

        Raises the first error, after all others have been committed; its `results` says of each
        whether it is visible, or why it is not.
        """
        with native_errors:
            answer = self._native.commit([writer.native for writer in writers])
        return commits(answer)

    def open_read(self, keys: Iterable[Key], *, leading: bool = True) -> ObjectReader:
        """Lease the longest leading run of `keys` that is present; `count` may be 0.

        Args:
            keys: of the objects.
            leading: False: all that are present.
        """
        with native_errors:
            return ObjectReader(self._native.open_read(keys, leading))

    # --- what is there ---

    def exists(self, key: Key) -> bool:
        """Return whether the key is committed. Takes no lease: it may be gone a moment later."""
        with native_errors:
            [is_there] = self._native.exists((key,))
        return bool(is_there)

    def batch_exists(self, keys: Iterable[Key]) -> list[bool]:
        """Return for each key whether it is committed."""
        with native_errors:
            there: list[bool] = self._native.exists(keys)
            return there

    def match_prefix(self, keys: Iterable[Key]) -> int:
        """Return how many leading keys exist. Takes no lease."""
        with native_errors:
            return int(self._native.match_prefix(keys))

    def size(self, key: Key) -> int | None:
        """Return the bytes of an object, or None: a miss. Takes no lease."""
        described = self.describe([key])[0]
        return None if described is None else described.size_bytes

    def describe(self, keys: Sequence[Key]) -> list[ObjectDescription | None]:
        """Return what the master knows of each key; None: it is not there."""
        with native_errors:
            bodies = self._native.describe(keys)
        return [one for body in bodies for one in decode_objects(body)[1]]

    def list_objects(
        self, prefix: Key = b"", *, page: int = 1000, unreadable: bool = False
    ) -> Iterator[ObjectDescription]:
        """Return the objects whose key starts with `prefix`, in no order, asking page by page.

        An object that is there all the while comes once; one that comes or goes may.

        Args:
            prefix: what their keys start with.
            page: keys that the master is asked for at once.
            unreadable: also those that are stored but cannot be read now: their group waits for
                members, or their nodes are not heard of.
        """
        check_number("page", page, 1, MAX_PAGE)
        return self._listed(prefix, page, unreadable)

    def _listed(self, prefix: Key, page: int, unreadable: bool) -> Iterator[ObjectDescription]:
        cursor = 0
        while True:
            with native_errors:
                body = self._native.list(prefix, cursor, page)
            cursor, objects = decode_objects(body, unreadable=unreadable)
            yield from (one for one in objects if one is not None)
            if cursor == 0:
                return

    def remove(self, key: Key) -> bool:
        """Make the key invisible at once; False when it was not there or is being written."""
        return self.batch_remove([key])[0]

    def batch_remove(self, keys: Iterable[Key]) -> list[bool]:
        """Remove each key; as `remove` for each."""
        with native_errors:
            removed: list[bool] = self._native.remove(keys)
            return removed

    def pin(
        self, keys: Sequence[Key], kind: PinKind = "hard", *, soft_pin_s: float | None = None
    ) -> list[bool]:
        """Set how hard each object is to be evicted; False where it is not there.

        Args:
            keys: of the objects.
            kind: none; soft: evicted only when nothing else is left, for a time; or hard: never
                evicted.
            soft_pin_s: how long a soft pin lasts; None: 30 minutes.
        """
        number, seconds = pin_number(kind), pin_seconds(kind, soft_pin_s)
        with native_errors:
            return list(self._native.set_pin(keys, number, seconds))

    def unpin(self, keys: Sequence[Key]) -> list[bool]:
        """Let each object be evicted like any other; False where it is not there."""
        return self.pin(keys, "none")

    def stats(self) -> ClusterStats:
        """Return what the master says about the whole store."""
        with native_errors:
            return decode_stats(self._native.stats())

    @functools.cached_property
    def admin(self) -> StoreAdmin:
        """Asks the same master for copies, moves and drains."""
        return StoreAdmin(self._config.master, timeout_s=self._config.timeout_s)

    @property
    def epoch(self) -> int:
        """Of the master last spoken to; 0: none yet."""
        return int(self._native.epoch)

    @property
    def read_faults(self) -> dict[str, int]:
        """Reads of this client that missed although the key was found, by cause."""
        corrupt, stale, unreachable = self._native.read_counters
        return {"corrupt": corrupt, "stale": stale, "unreachable": unreachable}

    def metrics(self) -> dict[str, int]:
        """Return what this client has counted so far, by names for a monitoring system."""
        return {f"reads_{cause}": count for cause, count in self.read_faults.items()}

    def close(self) -> None:
        """End the session. Readers and writers that are open end with it; calls raise then."""
        self._native.close()

    def _options(self, options: PutOptions | None) -> _native.StorePutOptions:
        return self._plain if options is None else native_options(options)


def _upsert(options: PutOptions | None) -> PutOptions:
    return msgspec.structs.replace(options or PutOptions(), upsert=True)


def _with_replicas(options: PutOptions | None, replicas: int) -> PutOptions:
    return msgspec.structs.replace(options or PutOptions(), replicas=replicas)
