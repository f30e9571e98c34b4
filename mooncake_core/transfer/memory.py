"""Memory of this process: segments that peers reach, and buffers for the local side of batches."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from mooncake_core.native import _native, native_errors
from mooncake_core.transfer.arrays import memory_of


class Segment:
    """Memory that peers may read and write. Made by TransferEngine.create_segment.

    It is prefaulted and stays where it is. Thread-safe.
    """

    def __init__(self, engine: _native.Engine, segment: _native.Segment) -> None:
        self._engine = engine
        self._segment = segment

    @property
    def id(self) -> int:
        """Random, 64 bits, never 0; what peers open it by."""
        return self._segment.id

    @property
    def size_bytes(self) -> int:
        """Bytes that were asked for."""
        return self._segment.size_bytes

    @property
    def address(self) -> int:
        """Of its first byte; a registered address."""
        return self._segment.address

    @property
    def buffer(self) -> memoryview:
        """All of it, writable, as bytes. The memory outlives close() while a view of it is held."""
        return self._segment.view()

    def close(self) -> None:
        """Take it away from peers: their next operation on it fails.

        Waits for batches of this engine that use it as local memory. Idempotent.
        """
        self._engine.close_segment(self._segment)


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
            BufferError: it is not contiguous.
            ValueError: it is empty.
            TransferError: it is on a GPU, and there is no CUDA driver.
        """
        memory = memory_of(source)
        with native_errors:
            if memory is None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
