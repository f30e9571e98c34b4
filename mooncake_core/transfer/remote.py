"""Memory of peers, and batches on their way to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from typing import Literal

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.numbers import Numbers

_FOREVER_S = 1e9


class Transfer:
    """A submitted batch. Thread-safe. `await` it, or call wait()."""

    def __init__(self, transfer: _native.Transfer) -> None:
        self._transfer = transfer

    def done(self) -> bool:
        """Return whether it has ended, well or not. Does not block."""
        return self._transfer.done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended: True, or `timeout_s` has passed: False, and it goes on.

        Raises:
            TransferError: it ended badly; RemoteSegment.read says how.
        """
        with native_errors:
            return self._transfer.wait(_FOREVER_S if timeout_s is None else timeout_s)

    def __await__(self) -> Generator[object, None, None]:
        """Wait in asyncio, for any number of tasks. Raises what wait() raises."""
        return self._ended().__await__()

    async def _ended(self) -> None:
        if not self.done():
            await _readable(self._transfer)
        self.wait(0)


class RemoteSegment:
    """A segment of another engine. Made by TransferEngine.open_segment. Thread-safe.

    Batches are three arrays of equal length, uint64: local address, remote byte offset, and length
    of each piece. Local memory must lie in registered buffers or own segments.
    """

    def __init__(
        self, engine: _native.Engine, remote: _native.RemoteSegment, timeout_s: float
    ) -> None:
        self._engine = engine
        self._remote: _native.RemoteSegment | None = remote
        self._timeout_s = timeout_s
        self.id = remote.id
        self.size_bytes = remote.size_bytes
        self.endpoint = remote.endpoint
        self.is_read_only = remote.is_read_only
        self.reason = remote.reason
        """Why this transport was taken: a sentence."""
        self.transport: Literal["shm", "tcp"] = "shm" if remote.transport == "shm" else "tcp"

    def read(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Read a batch into local memory. Blocks, without the GIL.

        Raises:
            TransferTimeout: `timeout_s` (default: the engine's) has passed.
            PeerUnreachable: the owner is gone.
            Fenced: the owner has revoked this process, or rotate() was called since the opening.
            ReadOnly: a write to memory that is lent for reading only; nothing has moved.
            BufferNotRegistered: local memory outside every registered buffer; nothing has moved.
            TransferError: the owner closed the segment.
            ValueError: a piece outside the segment, or arrays of unequal length.
            TypeError: arrays of another type.
        """
        self._execute(_native.Op.kRead, (addresses, offsets, lengths), timeout_s)

    def write(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Write a batch from local memory; when it returns, the owner's memory holds every byte.

        Blocks, without the GIL. After an error the target is dirty. Raises what read() raises.
        """
        self._execute(_native.Op.kWrite, (addresses, offsets, lengths), timeout_s)

    def submit_read(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
    ) -> Transfer:
        """Have an io thread read a batch; local memory is in use until the transfer has ended.

        Blocks only while very many batches are queued. Argument errors are raised here.
        """
        return self._submit(_native.Op.kRead, (addresses, offsets, lengths), timeout_s)

    def submit_write(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
    ) -> Transfer:
        """Have an io thread write a batch; see submit_read."""
        return self._submit(_native.Op.kWrite, (addresses, offsets, lengths), timeout_s)

    def close(self) -> None:
        """Let go of it; batches under way go on. Idempotent."""
        self._remote = None

    def _execute(
        self, op: _native.Op, batch: tuple[Numbers, Numbers, Numbers], timeout_s: float | None
    ) -> None:
        with native_errors:
            self._engine.execute(op, self._open(), *batch, self._timeout(timeout_s))

    def _submit(
        self, op: _native.Op, batch: tuple[Numbers, Numbers, Numbers], timeout_s: float | None
    ) -> Transfer:
        with native_errors:
            return Transfer(self._engine.submit(op, self._open(), *batch, self._timeout(timeout_s)))

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _open(self) -> _native.RemoteSegment:
        remote = self._remote
        if remote is None:
            raise ValueError(f"segment {self.id} at {self.endpoint} was closed here")
        return remote


async def _readable(transfer: _native.Transfer) -> None:
    """Wait until the transfer's eventfd is readable."""
    loop = asyncio.get_running_loop()
    # Several tasks may wait at once, and a loop keeps one reader a descriptor: each has its own.
    event = os.dup(transfer.event_fd())
    ended = asyncio.Event()
    loop.add_reader(event, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(event)
        os.close(event)
