"""The segments of decode instances that this process has opened. On one event loop."""

from __future__ import annotations

import asyncio

from mooncake_core.messages import Reserved
from mooncake_core.transfer import RemoteSegment, TransferEngine

_IDLE_S = 10.0
"""Opening maps memory, which takes time; a mapping keeps it from being freed, even if its owner is
dead."""

Key = tuple[str, int]


class Remotes:
    """Opens segments, and keeps them while they are used often."""

    def __init__(self, engine: TransferEngine) -> None:
        self._engine = engine
        self._peer_id = engine.peer_id
        self._open: dict[Key, RemoteSegment] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    async def open(self, target: Reserved) -> RemoteSegment:
        """Return the segment that `target` lies in. Raises TransferError."""
        if self._peer_id != self._engine.peer_id:  # what was opened as another is of no use
            self.clear()
            self._peer_id = self._engine.peer_id
        key = (target.endpoint, target.segment_id)
        remote = self._open.get(key)
        if remote is None:
            remote = await asyncio.to_thread(
                self._engine.open_segment, target.endpoint, target.segment_id
            )
        self._forget(key)
        self._open[key] = remote
        self._timers[key] = asyncio.get_running_loop().call_later(_IDLE_S, self._forget, key)
        return remote

    def drop(self, target: Reserved) -> None:
        """Open the segment of `target` anew the next time. Writes in flight go on."""
        self._forget((target.endpoint, target.segment_id))

    def clear(self) -> None:
        """Open all anew."""
        for key in list(self._open):
            self._forget(key)

    def _forget(self, key: Key) -> None:
        if self._open.pop(key, None) is not None:
            self._timers.pop(key).cancel()
