"""Memory of peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.numbers import Numbers, wrong_types
from mooncake_core.transfer.submitted import PreparedTransfer, Priority, Transfer, is_background

_T = TypeVar("_T")

_READ = _native.Op.kRead
_WRITE = _native.Op.kWrite


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
        self._hold: _native.Hold | None = _native.Hold(remote)  # goes after it
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
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> None:
        """Read a batch into local memory. Blocks, without the GIL.

        Args:
            addresses: of each piece here.
            offsets: of each piece in the segment.
            lengths: of each piece; 0 is fine.
            timeout_s: default: the engine's.
            priority: foreground batches go ahead of background ones.
            notify: at most 4,096 bytes that the owner is given once all has moved; it has them
                in its queue when this returns. TransferEngine.notifications reads them.

        Raises:
            TransferTimeout: `timeout_s` has passed.
            PeerUnreachable: the owner is gone.
            Fenced: the owner has revoked this process, or rotate() was called since the opening.
            ReadOnly: a write to memory that is lent for reading only; nothing has moved.
            BufferNotRegistered: local memory outside every registered buffer; nothing has moved.
            NotNotified: all has moved, but the owner's queue of notifications is full.
            TransferError: the owner closed the segment.
            ValueError: a piece outside the segment, arrays of unequal length, or a notification
                that is too long; nothing has moved.
            TypeError: arrays of another type.
        """
        batch = addresses, offsets, lengths
        self._call(self._engine.execute, _READ, batch, (timeout_s, priority, notify))

    def write(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> None:
        """Write a batch from local memory; when it returns, the owner's memory holds every byte.

        Blocks, without the GIL. Takes and raises what read() does; `is_dirty` of an error says
        whether the target may hold anything now.
        """
        batch = addresses, offsets, lengths
        self._call(self._engine.execute, _WRITE, batch, (timeout_s, priority, notify))

    def submit_read(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> Transfer:
        """Have an io thread read a batch; local memory is in use until the transfer has ended.

        Blocks only while very many batches are queued. Argument errors are raised here. Small
        batches to one segment that wait together are carried out together.
        """
        batch = addresses, offsets, lengths
        return Transfer(
            self._call(self._engine.submit, _READ, batch, (timeout_s, priority, notify))
        )

    def submit_write(
        self,
        addresses: Numbers,
        offsets: Numbers,
        lengths: Numbers,
        *,
        timeout_s: float | None = None,
        priority: Priority = "foreground",
        notify: bytes | None = None,
    ) -> Transfer:
        """Have an io thread write a batch; see submit_read."""
        batch = addresses, offsets, lengths
        return Transfer(
            self._call(self._engine.submit, _WRITE, batch, (timeout_s, priority, notify))
        )

    def prepare_read(
        self, addresses: Numbers, offsets: Numbers, lengths: Numbers
    ) -> PreparedTransfer:
        """Check a batch of reads once, to carry it out often at less cost. The arrays are copied.

        Raises:
            BufferNotRegistered, ValueError, TypeError: as read().
        """
        return self._prepare(_READ, addresses, offsets, lengths)

    def prepare_write(
        self, addresses: Numbers, offsets: Numbers, lengths: Numbers
    ) -> PreparedTransfer:
        """Check a batch of writes once; see prepare_read."""
        return self._prepare(_WRITE, addresses, offsets, lengths)

    def __repr__(self) -> str:
        return f"<RemoteSegment {self.id} at {self.endpoint} over {self.transport}>"

    def close(self) -> None:
        """Let go of it; batches under way go on. Idempotent."""
        self._remote = None
        self._hold = None

    def _call(
        self,
        call: Callable[..., _T],
        op: _native.Op,
        batch: tuple[Numbers, Numbers, Numbers],
        how: tuple[float | None, Priority, bytes | None],
    ) -> _T:
        timeout_s, priority, notify = how
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            with native_errors:
                return call(op, self._open(), *batch, limit_s, is_background(priority), notify)
        except TypeError as error:
            raise wrong_types(error, batch, notify) from error

    def _prepare(
        self, op: _native.Op, addresses: Numbers, offsets: Numbers, lengths: Numbers
    ) -> PreparedTransfer:
        try:
            with native_errors:
                prepared = self._engine.prepare(op, self._open(), addresses, offsets, lengths)
        except TypeError as error:
            raise wrong_types(error, (addresses, offsets, lengths)) from error
        return PreparedTransfer(self._engine, prepared, self._timeout_s)

    def _open(self) -> _native.RemoteSegment:
        remote = self._remote
        if remote is None:
            raise ValueError(f"segment {self.id} at {self.endpoint} was closed here")
        return remote
