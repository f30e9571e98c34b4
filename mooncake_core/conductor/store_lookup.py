"""How much of a prompt the store has, asked without ever waiting long or failing.

The store is a cache: while it is away the answer is that it has nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import msgspec

from mooncake_core.conductor.waiting import within
from mooncake_core.errors import MooncakeError

log = logging.getLogger(__name__)
T = TypeVar("T")

_WAIT_S = 0.5
"""A lookup takes well under a millisecond; a prompt that waits longer is better computed."""
_THREADS = 4


class BlockStore(Protocol):
    """The part of the store's client that is used here. Blocking."""

    def match_prefix(self, keys: Sequence[bytes]) -> int:
        """Return how many leading keys exist."""
        ...

    def stats(self) -> Any:
        """Return a struct of counts."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class StoreLookup:
    """Asks the store from threads.

    Args:
        connect: returns a client or raises MooncakeError; called again after a failure.
    """

    def __init__(self, connect: Callable[[], BlockStore]) -> None:
        self._connect = connect
        self._store: BlockStore | None = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store-lookup")
        self._asked = 0
        self.failures = 0

    async def match(self, names: Sequence[bytes]) -> int:
        """Return how many leading blocks the store has; 0 if it does not say soon."""
        if not names:
            return 0
        return await self._ask(lambda store: store.match_prefix(names)) or 0

    async def stats(self) -> dict[str, Any] | None:
        """Return the store's own counts, or None while it is away."""
        found = await self._ask(lambda store: store.stats())
        return None if found is None else msgspec.to_builtins(found)

    async def close(self) -> None:
        """Disconnect; waits for calls in progress, which the client bounds."""
        await asyncio.to_thread(self._threads.shutdown)
        if self._store is not None:
            self._store.close()

    async def _ask(self, question: Callable[[BlockStore], T]) -> T | None:
        # A call that was given up on still holds its thread. With all threads held the store is
        # away, and waiting in line would tell nothing sooner.
        if self._asked >= _THREADS:
            self.failures += 1
            return None
        self._asked += 1
        call = asyncio.get_running_loop().run_in_executor(self._threads, self._call, question)
        call.add_done_callback(self._ended)
        try:
            return await within(_WAIT_S, asyncio.shield(call))
        except (MooncakeError, asyncio.TimeoutError) as error:
            self.failures += 1
            log.info("the store does not answer: %s", str(error) or f"nothing in {_WAIT_S} s")
            return None

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self._asked -= 1
        if not call.cancelled():
            call.exception()  # Seen: it was reported, or nobody waited any more.

    def _call(self, question: Callable[[BlockStore], T]) -> T:
        with self._connecting:
            if self._store is None:
                self._store = self._connect()
        return question(self._store)
