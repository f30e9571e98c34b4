"""Memory of this process: segments that peers reach, and buffers for the local side of batches."""

from __future__ import annotations

from typing import Any

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.arrays import memory_of

_lent: dict[int, _native.Segment] = {}
"""Memory that was lent and that peers may reach still; kept here whatever else forgets it."""


class Segment:
    """Memory that peers may reach: taken by TransferEngine.create_segment, or lent by lend().

    It stays where it is; what was taken is prefaulted. Thread-safe.
    """

    def __init__(self, engine: _native.Engine, segment: _native.Segment, timeout_s: float) -> None:
        self._engine = engine
        self._segment: _native.Segment | None = segment
        self._hold: _native.Hold | None = _native.Hold(segment)  # goes after it
        self._timeout_s = timeout_s
        self.id = segment.id
        """Random, 64 bits, never 0; what peers open it by."""
        self.name = segment.name
        """The same for people, unique in this engine; empty: none."""
        self.size_bytes = segment.size_bytes
        self.address = segment.address
        """Of its first byte; a registered address."""
        self.is_lent = segment.is_lent
        self.is_read_only = segment.is_read_only
        """Peers may not write it."""
        if self.is_lent:
            _lent[self.id] = segment

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Segment {self.id}{name} of {self.size_bytes} bytes>"

    @property
    def buffer(self) -> memoryview:
        """All of it as bytes, writable unless read-only. A view keeps the memory, beyond close().

        Raises:
            ValueError: it was lent, and has been given back.
        """
        segment = self._segment
        if segment is None:
            raise ValueError(f"segment {self.id} was closed")
        return segment.view()

    def close(self, *, timeout_s: float | None = None) -> bool:
        """Take it away from peers: their next operation on it fails. Idempotent.

        Waits for batches of this engine that use it as local memory. Returns True at once for
        memory that was taken: the last that holds it frees it. Memory that was lent may be in
        use by peers, so this waits, without the GIL, until each has let go of it or is dead: True;
        or until `timeout_s` (default: the engine's) has passed: False. Then the memory is kept
        alive, and a later call waits on.
        """
        segment = self._segment
        if segment is None:
            return True
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        is_free = self._engine.close_segment(segment, limit_s)
        if is_free and self.is_lent:
            _lent.pop(self.id, None)
            self._segment = None
            self._hold = None
        return is_free


def lend(
    engine: _native.Engine, buffer: Buffer, *, name: str, read_only: bool, timeout_s: float
) -> Segment:
    """Let peers reach registered memory; the segment keeps the registration until it is free.

    Raises:
        ValueError: the name is taken, or the memory is read-only and `read_only` is not said.
    """
    if buffer.native.is_read_only and not read_only:
        raise ValueError("read-only memory can only be lent with read_only=True")
    with native_errors:
        segment = engine.lend(buffer.native, read_only, name)
    return Segment(engine, segment, timeout_s)


class Buffer:
    """Registered local memory, kept alive and in place until close(). Thread-safe."""

    def __init__(self, buffer: _native.Buffer) -> None:
        self._buffer = buffer

    @classmethod
    def of_object(cls, engine: _native.Engine, source: Any) -> Buffer:
        """Register an object's memory; that of a read-only one as a source of writes only.

        It may have the buffer protocol, be a PyTorch tensor on the CPU or a GPU, or have
        `__cuda_array_interface__`. Work on a GPU that a batch depends on must have ended when the
        batch begins: the engine knows no streams.

        Raises:
            TypeError: it has no memory that can be reached.
            BufferError: it is not contiguous; NumPy's arrays raise ValueError.
            ValueError: it is empty.
            TransferError: it is on a GPU, and there is no CUDA driver.
        """
        memory = memory_of(source)
        with native_errors:
            if memory is None:
                _check_buffer(source)
                return cls(_native.Buffer(engine, source))
            return cls(
                _native.Buffer(
                    engine,
                    memory.address,
                    memory.size_bytes,
                    source,
                    on_device=memory.is_on_device,
                    is_read_only=memory.is_read_only,
                )
            )

    @classmethod
    def of_address(
        cls, engine: _native.Engine, address: int, size_bytes: int, owner: object = None
    ) -> Buffer:
        """Register raw memory; `owner`, kept alive with it, is whatever keeps it in place."""
        with native_errors:
            return cls(_native.Buffer(engine, address, size_bytes, owner))

    def __repr__(self) -> str:
        return f"<Buffer of {self.size_bytes} bytes at {self.address:#x}>"

    @property
    def native(self) -> _native.Buffer:
        """For the other parts of the native library."""
        return self._buffer

    @property
    def address(self) -> int:
        """Of its first byte."""
        return self._buffer.address

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self._buffer.size_bytes

    def close(self) -> None:
        """Wait for batches that use it, then let go of the memory. Idempotent."""
        self._buffer.close()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_buffer(source: Any) -> None:
    """Raise TypeError if it has no buffer, BufferError if that is not one run of bytes."""
    try:
        view = memoryview(source)
    except TypeError as error:
        raise TypeError(
            f"a {type(source).__name__} cannot be registered: an array, a tensor, or another "
            "object with the buffer protocol is needed"
        ) from error
    if not view.c_contiguous:
        raise BufferError(
            f"a buffer of strides {view.strides} and shape {view.shape}; a contiguous one is needed"
        )
