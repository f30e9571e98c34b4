"""The segments of decode instances that this process has opened. On one event loop."""

from __future__ import annotations

import asyncio

from mooncake_core.messages import Reserved
from mooncake_core.transfer import RemoteSegment, TransferEngine

_KEPT = 32
"""Opening costs a round trip and, over shm, a mapping; keeping costs address space."""


class Remotes:
    """Opens segments once, and forgets those that failed."""

    def __init__(self, engine: TransferEngine) -> None:
        self._engine = engine
        self._open: dict[tuple[str, int], RemoteSegment] = {}

    async def open(self, target: Reserved) -> RemoteSegment:
        """Return the segment that `target` lies in. Raises TransferError."""
        key = (target.endpoint, target.segment_id)
        remote = self._open.pop(key, None)
        if remote is None:
            remote = await asyncio.to_thread(
                self._engine.open_segment, target.endpoint, target.segment_id
            )
        self._open[key] = remote
        if len(self._open) > _KEPT:
            del self._open[next(iter(self._open))]
        return remote

    def drop(self, target: Reserved) -> None:
        """Open the segment of `target` anew the next time. Writes in flight go on."""
        self._open.pop((target.endpoint, target.segment_id), None)

    def clear(self) -> None:
        """Open all anew."""
        self._open.clear()
