"""Keeps the conductor informed: who this instance is, how busy, and which blocks it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from mooncake_core.messages import Heartbeat, InstanceInfo, InstanceLoad, KvEvents
from mooncake_core.worker.http import Peers

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
_TIMEOUT_S = 2.0


class EventSource(Protocol):
    """Where KV events come from."""

    def take_events(self) -> KvEvents | None:
        """Return what changed since the last call."""
        ...

    def take_snapshot(self) -> KvEvents:
        """Return everything, as seq 0."""
        ...


class Announcer:
    """Registers with the conductor and sends heartbeats, for ever, whether it is there or not.

    Args:
        peers: carries the messages.
        conductor: its host:port.
        info: returns who this instance is now.
        load: returns how busy it is.
        events: of its blocks; None when it keeps none.
    """

    def __init__(
        self,
        peers: Peers,
        conductor: str,
        info: Callable[[], InstanceInfo],
        load: Callable[[], InstanceLoad],
        events: EventSource | None = None,
    ) -> None:
        self._peers = peers
        self._url = f"http://{conductor}/internal"
        self._info = info
        self._load = load
        self._events = events
        self._wake = asyncio.Event()
        self._registered: InstanceInfo | None = None
        """As what the conductor knows us."""
        self._complete = False
        """The conductor knows our blocks, but for the events not yet taken."""
        self._failures = 0
        """In a row."""

    def poke(self) -> None:
        """Send a heartbeat now, after a registration if this instance has a new identity."""
        self._wake.set()

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._announce()
                self._failures = 0
            except OSError as error:
                self._registered, self._complete = None, False
                self._failures += 1
                if self._failures == 2:  # one is no news: where all stop, the conductor is first
                    log.warning("the conductor does not answer, still trying: %s", error)
            # A timer: a wait with a limit may lose a cancellation before Python 3.12.
            timer = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _announce(self) -> None:
        if self._registered != self._info():
            await self._register()
        if self._registered is not None and await self._beat() == 410:
            await self._register()
            if self._registered is not None:
                await self._beat()

    async def _register(self) -> None:
        info, self._registered, self._complete = self._info(), None, False
        status, body = await self._peers.post(f"{self._url}/instances", info, _TIMEOUT_S)
        if status >= 300:
            log.error(
                "the conductor refuses this instance (%d): %s",
                status,
                body.decode(errors="replace")[:500],
            )
            return
        log.info("registered with the conductor as %s", info.instance_id)
        self._registered = info

    async def _beat(self) -> int:
        events = self._take_events()
        heartbeat = Heartbeat(
            instance_id=self._info().instance_id, load=self._load(), events=events
        )
        status, _ = await self._peers.post(f"{self._url}/heartbeat", heartbeat, _TIMEOUT_S)
        self._complete = status < 300
        return status

    def _take_events(self) -> KvEvents | None:
        if self._events is None:
            return None
        return self._events.take_events() if self._complete else self._events.take_snapshot()
