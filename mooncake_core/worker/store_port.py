"""The store as a prefill instance uses it: always optional, never waited for twice in a row."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_core.clock import Clock
from mooncake_core.errors import MooncakeError, OutOfSpace
from mooncake_core.store import ObjectReader, StoreClient

log = logging.getLogger(__name__)

_REST_S = 2.0
"""How long the store is left alone after it failed."""


@dataclass(frozen=True)
class Found:
    """What the store has of a prompt."""

    present_blocks: int
    """Leading blocks that are there."""
    reader: ObjectReader | None
    """Leases of those behind the local ones, if there are any."""


class StorePort:
    """Asks the store while it answers, and does without it otherwise. Thread-safe.

    Args:
        client: of the store.
        clock: monotonic.
    """

    def __init__(self, client: StoreClient, clock: Clock) -> None:
        self.client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._rests_until_s = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether the store is worth a try."""
        with self._lock:
            return self._clock() >= self._rests_until_s

    def find(self, names: Sequence[bytes], local_blocks: int, reusable_blocks: int) -> Found:
        """Look up a prompt's blocks and lease those in [local, reusable) that can be loaded.

        Blocks for a round trip or two, at most for the client's timeout. The caller closes the
        reader.
        """
        if not names or not self.is_usable:
            return Found(len(names), None)
        try:
            present = self.client.match_prefix(list(names))
            wanted = list(names[local_blocks : min(present, reusable_blocks)])
            reader = self.client.open_read(wanted) if wanted else None
        except MooncakeError as error:
            self.note(error)
            return Found(len(names), None)
        if reader is not None and reader.count == 0:
            reader.close()
            reader = None
        return Found(present, reader)

    def note(self, error: MooncakeError) -> None:
        """Leave the store alone for a moment because of `error`; not because it is full."""
        if isinstance(error, OutOfSpace):
            log.info("a block is not stored: %s", error)
            return
        log.warning("the store failed; computing without it: %s", error)
        with self._lock:
            self._rests_until_s = self._clock() + _REST_S
