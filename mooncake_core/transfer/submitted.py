"""Batches on their way, and batches to be sent many times."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Literal

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.waiting import readable

_FOREVER_S = 1e9

Priority = Literal["foreground", "background"]
"""Foreground batches go ahead of background ones, in the queue and on every path."""


def is_background(priority: Priority) -> bool:
    """Return what the native side wants to know, or raise ValueError."""
    if priority == "foreground":
        return False
    if priority == "background":
        return True
    raise ValueError(f'priority is {priority!r}; "foreground" or "background" is needed')


class Transfer:
    """A submitted batch. Thread-safe. `await` it, or call wait(), or poll done().

    Its local memory is in use until it has ended, whoever still waits for it.
    """

    def __init__(self, transfer: _native.Transfer) -> None:
        self._transfer = transfer

    def done(self) -> bool:
        """Return whether it has ended, well or not. Does not block."""
        return self._transfer.done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended: True, or `timeout_s` has passed: False, and it goes on.

        Raises:
            TransferCancelled: cancel() ended it.
            TransferError: it ended badly; RemoteSegment.read says how.
        """
        with native_errors:
            return self._transfer.wait(_FOREVER_S if timeout_s is None else timeout_s)

    def cancel(self) -> None:
        """Have it end, with TransferCancelled, within some 10 ms. Does not block.

        One that waits for its turn ends at once, and nothing of it moves; one that has ended stays
        as it is. `is_dirty` of the error says whether a write had begun.
        """
        self._transfer.cancel()

    def __await__(self) -> Generator[object, None, None]:
        """Wait in asyncio, for any number of tasks. Raises what wait() raises.

        When one of them is cancelled, so is the transfer, and the task goes on only once it has
        ended: afterwards nothing touches its memory. asyncio.shield keeps it going.
        """
        return self._ended().__await__()

    async def _ended(self) -> None:
        if not self.done():
            await self._until_done()
        self.wait(0)

    async def _until_done(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while not self.done():
            try:
                await readable(self._transfer.event_fd())
            except asyncio.CancelledError as error:
                cancelled = error
                self.cancel()
        if cancelled is not None:
            raise cancelled


class PreparedTransfer:
    """A batch that was checked once, to be carried out often. Thread-safe, also at the same time.

    Made by RemoteSegment.prepare_read and prepare_write. It keeps no local memory alive: after
    that was unregistered it raises BufferNotRegistered, and after rotate() Fenced.
    """

    def __init__(
        self, engine: _native.Engine, prepared: _native.PreparedTransfer, timeout_s: float
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._timeout_s = timeout_s

    @property
    def size_bytes(self) -> int:
        """Bytes that each run moves."""
        return self._prepared.size_bytes

    @property
    def piece_count(self) -> int:
        """Pieces, after those that follow each other on both sides were made one."""
        return self._prepared.piece_count

    def run(
        self,
        *,
        timeout_s: float | None = None,
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> None:
        """Carry it out once; RemoteSegment.read and write say how. Blocks, without the GIL."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with native_errors:
            self._engine.execute_prepared(self._prepared, limit_s, is_background(priority), notify)

    def submit(
        self,
        *,
        timeout_s: float | None = None,
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> Transfer:
        """Have an io thread carry it out once; see RemoteSegment.submit_read."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with native_errors:
            return Transfer(
                self._engine.submit_prepared(
                    self._prepared, limit_s, is_background(priority), notify
                )
            )
