"""The store as a process uses it.

All calls block with the GIL released and may be made by any thread. A miss, and a key that is there
already, are answers; while the master is away calls raise StoreUnavailable, and the client comes
back by itself when the master does. Whole batches cross to the native code and are asked for in
messages of up to 1,024 keys.

Memory is given by address: an array("Q") of addresses inside registered buffers or own segments,
and one of lengths; the `_from` and `_into` forms move bytes between it and the store directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mooncake_core.config import StoreClientConfig, checked
from mooncake_core.native import _native, native_errors
from mooncake_core.store.crossing import (
    Buffer,
    Links,
    Memory,
    columns,
    commits,
    native_links,
    native_options,
    results,
    wrong_buffer,
    wrong_memory,
    wrong_values,
)
from mooncake_core.store.objects import ObjectReader, ObjectView, ObjectWriter, native_writers
from mooncake_core.store.options import (
    MAX_BYTES,
    Key,
    Link,
    PutOptions,
    PutResult,
    check_list,
    check_number,
)
from mooncake_core.store.questions import StoreQuestions
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.numbers import Numbers


class StoreClient(StoreQuestions):
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
        self._plain = native_options(PutOptions())
        native = _native.StoreClient(
            engine.native,
            master=config.master,
            replicas=config.replicas,
            timeout_s=config.timeout_s,
            checksums=config.checksums,
        )
        super().__init__(native, config)

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
        return self._put([key], [value], options, links)[0]

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
        try:
            with native_errors:
                size: int | None = self._native.get_into(key, buffer)
                return size
        except TypeError as error:
            raise wrong_buffer(error, "buffer", buffer) from error

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
        keys, values = columns(items)
        return self._put(keys, values, options, links)

    def _put(
        self,
        keys: list[Key],
        values: list[Buffer],
        options: PutOptions | None,
        links: Links | None,
    ) -> list[PutResult]:
        try:
            with native_errors:
                answer = self._native.put(keys, values, self._options(options), native_links(links))
        except TypeError as error:
            raise wrong_values(error, keys, values) from error
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
        links = None if link is None else [link]
        return self._put_from((key,), (addresses, lengths, None), options, links)[0]

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
        return self._put_from(keys, (addresses, lengths, counts), options, links)

    def _put_from(
        self,
        keys: Sequence[Key],
        memory: Memory,
        options: PutOptions | None,
        links: Links | None,
    ) -> list[PutResult]:
        try:
            with native_errors:
                answer = self._native.put_from(
                    keys, *memory, self._options(options), native_links(links)
                )
        except TypeError as error:
            raise wrong_memory(error, memory, "lengths") from error
        return results(answer)

    def get_into_memory(self, key: Key, addresses: Numbers, capacities: Numbers) -> int | None:
        """Scatter the value over the runs of memory, in order; as `batch_get_into`."""
        return self.batch_get_into((key,), addresses, capacities)[0]

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
        memory = addresses, capacities, counts
        try:
            with native_errors:
                return list(self._native.get_into_memory(keys, *memory))
        except TypeError as error:
            raise wrong_memory(error, memory, "capacities") from error

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
        check_list("sizes", sizes, "sizes in bytes")
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
        check_list("offsets", offsets, "whole numbers")
        memory = addresses, lengths, counts
        try:
            with native_errors:
                self._native.write_ranges(native_writers(writers), list(offsets), *memory)
        except TypeError as error:
            raise wrong_memory(error, memory, "lengths") from error

    def batch_commit(self, writers: Sequence[ObjectWriter]) -> list[bool]:
        """Commit several objects of this client with one question; as `ObjectWriter.commit`.

        Raises the first error, after all others have been committed; its `results` says of each
        whether it is visible, or why it is not.
        """
        with native_errors:
            answer = self._native.commit(native_writers(writers))
        return commits(answer)

    def open_read(self, keys: Iterable[Key], *, leading: bool = True) -> ObjectReader:
        """Lease the longest leading run of `keys` that is present; `count` may be 0.

        Args:
            keys: of the objects.
            leading: False: all that are present.
        """
        with native_errors:
            return ObjectReader(self._native.open_read(keys, leading))

    def close(self) -> None:
        """End the session. Readers and writers that are open end with it; calls raise then.

        `with` does it at its end. Again is harmless.
        """
        self._native.close()

    def __enter__(self) -> StoreClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _options(self, options: PutOptions | None) -> _native.StorePutOptions:
        return self._plain if options is None else native_options(options)


def _upsert(options: PutOptions | None) -> PutOptions:
    return msgspec.structs.replace(options or PutOptions(), upsert=True)


def _with_replicas(options: PutOptions | None, replicas: int) -> PutOptions:
    return msgspec.structs.replace(options or PutOptions(), replicas=replicas)
