"""The store in asyncio: what StoreClient and what it opens do, as coroutines.

The calls are the blocking classes' own, made by a few threads of the client, so that the event loop
runs on meanwhile. When a task that awaits one is cancelled, a call that has not begun never does,
and one that is under way is waited for before the task goes on: afterwards nothing touches its
memory, and what it has opened is closed. A client belongs to one event loop.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from mooncake_core.config import StoreClientConfig
from mooncake_core.errors import TransferError
from mooncake_core.store.client import StoreClient
from mooncake_core.store.crossing import Links
from mooncake_core.store.described import ObjectDescription
from mooncake_core.store.objects import ObjectReader, ObjectView, ObjectWriter
from mooncake_core.store.options import (
    Key,
    Link,
    PutOptions,
    PutResult,
    check_list,
    check_number,
    check_type,
)
from mooncake_core.store.tasks import StoreAdmin
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.numbers import Numbers

B_co = TypeVar("B_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="_Closing[Any]")


_MOST_THREADS = 1024


class _Threads:
    """A few threads that block in place of the event loop."""

    def __init__(self, count: int) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="mooncake-store")

    async def call(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the call in a thread; it has ended, or never begins, when this ends."""
        if os.getpid() != self._process:
            raise TransferError(
                f"the store client belongs to process {self._process}, of which this is a fork: "
                "make an engine and a client here"
            )
        try:
            future = self._pool.submit(call, *args, **kwargs)
        except RuntimeError as error:
            raise TransferError("the store client is closed") from error
        return await self._ended(future)

    async def _ended(self, future: Future[R]) -> R:
        result = asyncio.wrap_future(future)
        cancelled: asyncio.CancelledError | None = None
        while not result.done():
            try:
                await asyncio.wait([result])
            except asyncio.CancelledError as error:
                cancelled = error
                future.cancel()
        if cancelled is None:
            return result.result()
        if not result.cancelled() and result.exception() is None:
            with contextlib.suppress(RuntimeError):  # all is closed already
                self._pool.submit(_let_go, result.result())
        raise cancelled

    def end(self) -> None:
        """Wait for calls that were made, and take no more."""
        self._pool.shutdown()


class _Awaited(Generic[B_co]):
    """Stands for a `blocking` object, whose calls it makes in threads."""

    def __init__(self, blocking: B_co, threads: _Threads) -> None:
        self.blocking = blocking
        """The same for threads."""
        self._threads = threads

    async def call(
        self, function: Callable[Concatenate[B_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call `function` with the blocking object and these arguments, in a thread.

        For what is made of several calls: `await store.call(put_tensor, key, tensor)`.
        """
        return await self._threads.call(function, self.blocking, *args, **kwargs)


def _awaited(
    method: Callable[Concatenate[B_co, P], R],
) -> Callable[Concatenate[_Awaited[B_co], P], Coroutine[Any, Any, R]]:
    """Return a method of the blocking object as a coroutine."""

    @functools.wraps(method)
    async def call(self: _Awaited[B_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.call(method, *args, **kwargs)

    return call


class _Closing(_Awaited[B_co], abc.ABC):
    """One that `async with` closes."""

    @abc.abstractmethod
    async def close(self) -> None:
        """See the blocking object's."""

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncObjectWriter(_Awaited[ObjectWriter]):
    """An ObjectWriter. `async with` aborts it unless it was committed."""

    write = _awaited(ObjectWriter.write)
    write_part = _awaited(ObjectWriter.write_part)
    commit = _awaited(ObjectWriter.commit)
    abort = _awaited(ObjectWriter.abort)

    async def __aenter__(self) -> AsyncObjectWriter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()


class AsyncObjectReader(_Closing[ObjectReader]):
    """An ObjectReader. `async with` ends its lease."""

    read = _awaited(ObjectReader.read)
    read_ranges = _awaited(ObjectReader.read_ranges)
    read_part = _awaited(ObjectReader.read_part)
    read_parts = _awaited(ObjectReader.read_parts)
    close = _awaited(ObjectReader.close)

    @property
    def count(self) -> int:
        """How many leading keys of those asked for are present."""
        return self.blocking.count

    @property
    def found(self) -> list[int | None]:
        """Bytes of each that was looked up; None: it is not there."""
        return self.blocking.found


class AsyncObjectView(_Closing[ObjectView]):
    """An ObjectView. `async with` ends its pin."""

    close = _awaited(ObjectView.close)
    _exit = _awaited(ObjectView.__exit__)

    async def __aexit__(self, *raised: Any) -> None:
        """As the blocking one's: what is raised is not replaced by a BufferError."""
        await self._exit(*raised)

    @property
    def buffer(self) -> memoryview:
        """See ObjectView.buffer."""
        return self.blocking.buffer


class AsyncStoreClient(_Closing[StoreClient]):
    """A process's use of the store from an event loop; `blocking` is the client that it uses."""

    put = _awaited(StoreClient.put)
    upsert = _awaited(StoreClient.upsert)
    get = _awaited(StoreClient.get)
    get_range = _awaited(StoreClient.get_range)
    get_into = _awaited(StoreClient.get_into)
    batch_put = _awaited(StoreClient.batch_put)
    batch_get = _awaited(StoreClient.batch_get)
    put_from = _awaited(StoreClient.put_from)
    batch_put_from = _awaited(StoreClient.batch_put_from)
    get_into_memory = _awaited(StoreClient.get_into_memory)
    batch_get_into = _awaited(StoreClient.batch_get_into)
    exists = _awaited(StoreClient.exists)
    batch_exists = _awaited(StoreClient.batch_exists)
    match_prefix = _awaited(StoreClient.match_prefix)
    size = _awaited(StoreClient.size)
    describe = _awaited(StoreClient.describe)
    remove = _awaited(StoreClient.remove)
    batch_remove = _awaited(StoreClient.batch_remove)
    pin = _awaited(StoreClient.pin)
    unpin = _awaited(StoreClient.unpin)
    stats = _awaited(StoreClient.stats)
    metrics = _awaited(StoreClient.metrics)

    def __init__(
        self, engine: TransferEngine, config: StoreClientConfig, *, threads: int = 4
    ) -> None:
        """Start a session in the background; the master may come later.

        Args:
            engine: of this process.
            config: see StoreClient.
            threads: calls that are under way at once, 1 to 1,024; others wait for their turn.
        """
        check_number("threads", threads, 1, _MOST_THREADS)
        super().__init__(StoreClient(engine, config), _Threads(threads))

    async def open_write(
        self,
        key: Key,
        *,
        size_bytes: int,
        part_bytes: int = 0,
        replicas: int | None = None,
        options: PutOptions | None = None,
        link: Link | None = None,
    ) -> AsyncObjectWriter | None:
        """See StoreClient.open_write."""
        writer = await self.call(
            StoreClient.open_write,
            key,
            size_bytes=size_bytes,
            part_bytes=part_bytes,
            replicas=replicas,
            options=options,
            link=link,
        )
        return None if writer is None else AsyncObjectWriter(writer, self._threads)

    async def batch_open_write(
        self,
        keys: Sequence[Key],
        sizes: Sequence[int],
        *,
        part_bytes: int = 0,
        options: PutOptions | None = None,
        links: Links | None = None,
    ) -> list[AsyncObjectWriter | PutResult]:
        """See StoreClient.batch_open_write."""
        opened = await self.call(
            StoreClient.batch_open_write,
            keys,
            sizes,
            part_bytes=part_bytes,
            options=options,
            links=links,
        )
        return [
            AsyncObjectWriter(one, self._threads) if isinstance(one, ObjectWriter) else one
            for one in opened
        ]

    async def write_ranges(
        self,
        writers: Sequence[AsyncObjectWriter],
        offsets: Sequence[int],
        addresses: Numbers,
        lengths: Numbers,
        *,
        counts: Numbers | None = None,
    ) -> None:
        """See StoreClient.write_ranges."""
        blocking = _blocking(writers)
        await self.call(
            StoreClient.write_ranges, blocking, offsets, addresses, lengths, counts=counts
        )

    async def batch_commit(self, writers: Sequence[AsyncObjectWriter]) -> list[bool]:
        """See StoreClient.batch_commit."""
        return await self.call(StoreClient.batch_commit, _blocking(writers))

    async def open_read(self, keys: Iterable[Key], *, leading: bool = True) -> AsyncObjectReader:
        """See StoreClient.open_read."""
        reader = await self.call(StoreClient.open_read, keys, leading=leading)
        return AsyncObjectReader(reader, self._threads)

    async def view(self, key: Key) -> AsyncObjectView | None:
        """See StoreClient.view."""
        view = await self.call(StoreClient.view, key)
        return None if view is None else AsyncObjectView(view, self._threads)

    async def list_objects(
        self, prefix: Key = b"", *, page: int = 1000, unreadable: bool = False
    ) -> AsyncIterator[ObjectDescription]:
        """See StoreClient.list_objects."""
        objects = self.blocking.list_objects(prefix, page=page, unreadable=unreadable)
        while found := await self._threads.call(_take, objects, page):
            for one in found:
                yield one

    @property
    def engine(self) -> TransferEngine:
        """See StoreClient.engine."""
        return self.blocking.engine

    @property
    def admin(self) -> StoreAdmin:
        """See StoreClient.admin. It blocks: `await store.call(lambda it: it.admin.tasks())`."""
        return self.blocking.admin

    @property
    def epoch(self) -> int:
        """See StoreClient.epoch."""
        return self.blocking.epoch

    @property
    def read_faults(self) -> dict[str, int]:
        """See StoreClient.read_faults."""
        return self.blocking.read_faults

    async def close(self) -> None:
        """End the session, and wait for calls that are under way; they raise, as later ones do."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self.blocking.close()
        self._threads.end()


def _take(objects: Iterator[ObjectDescription], count: int) -> list[ObjectDescription]:
    return list(itertools.islice(objects, count))


def _blocking(writers: Sequence[AsyncObjectWriter]) -> list[ObjectWriter]:
    check_list("writers", writers, "AsyncObjectWriters")
    for writer in writers:
        check_type("one of writers", writer, AsyncObjectWriter, "an AsyncObjectWriter")
    return [writer.blocking for writer in writers]


def _let_go(result: object) -> None:
    """Close what a call has opened for a task that was cancelled meanwhile."""
    for opened in result if isinstance(result, list) else [result]:
        if isinstance(opened, ObjectWriter):
            opened.abort()
        elif isinstance(opened, ObjectReader | ObjectView):
            opened.close()
