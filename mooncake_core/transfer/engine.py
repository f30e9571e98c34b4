"""The engine of a process."""

from __future__ import annotations

import logging
import os
from typing import Any

from mooncake_core.config.load import checked
from mooncake_core.config.tables import TransferConfig, refuse_wildcard
from mooncake_core.errors import ConfigError
from mooncake_core.listening import explained
from mooncake_core.native import Code, _native, native_errors
from mooncake_core.transfer.choice import Choice, choose
from mooncake_core.transfer.memory import Buffer, Segment, lend
from mooncake_core.transfer.notifications import Notification
from mooncake_core.transfer.remote import RemoteSegment
from mooncake_core.transfer.statistics import PathStatistics, path_statistics
from mooncake_core.transfer.waiting import readable

log = logging.getLogger(__name__)


class TransferEngine:
    """Lends memory to peers and reaches theirs. One a process; thread-safe.

    Raises:
        ConfigError: an address, the protocol or the topology file cannot be used.
    """

    def __init__(self, config: TransferConfig) -> None:
        config = checked(config, TransferConfig)
        self._timeout_s = config.timeout_s
        self.choice: Choice = choose(config)
        """The network and the addresses that were taken, and why."""
        self._native = _create(config, self.choice)
        log.info("%s: %s, since %s", self.endpoint, self.choice.protocol, self.choice.reason)

    def __repr__(self) -> str:
        return f"<TransferEngine at {self.endpoint}>"

    @property
    def native(self) -> _native.Engine:
        """For the other parts of the native library."""
        return self._native

    @property
    def endpoint(self) -> str:
        """host:port that is bound; what peers open segments by."""
        return self._native.endpoint

    @property
    def peer_id(self) -> int:
        """Random, 64 bits, never 0; what owners of memory know this process by. See rotate()."""
        return self._native.peer_id

    @property
    def engine_id(self) -> int:
        """Random, never 0, the same for as long as this engine lives; see open_segment."""
        return self._native.engine_id

    @property
    def host_id(self) -> str:
        """Equal iff two processes can share memory."""
        return self._native.host_id

    def create_segment(self, size_bytes: int, name: str = "") -> Segment:
        """Take memory and let peers reach it. Blocks while it is prefaulted.

        Args:
            size_bytes: at least 1.
            name: what peers may open it by instead of its id: unique in this engine, at most 255
                bytes; empty: none.

        Raises:
            OutOfSpace: there is not so much; the message says by which limit.
            ValueError: the name is taken or too long.
        """
        with native_errors:
            segment = self._native.create_segment(size_bytes, name)
        return Segment(self._native, segment, self._timeout_s)

    def lend(
        self,
        source: Any,
        size_bytes: int | None = None,
        *,
        name: str = "",
        read_only: bool = False,
    ) -> Segment:
        """Let peers reach memory that exists: those on this host directly, others over TCP.

        The memory is kept alive, and must stay where it is, until close() of the segment has
        returned True or the process ends. Batches of this engine may use it as local memory.

        Args:
            source: what register() takes; or an address, of memory that the caller keeps in place.
            size_bytes: with an address, and only then.
            name: as for create_segment.
            read_only: peers may not write it. Needed for memory that is read-only itself.

        Raises:
            ValueError: see above, or there is no such memory.
        """
        if (size_bytes is None) == isinstance(source, int):
            raise ValueError("an address needs size_bytes, and an object has a size of its own")
        if size_bytes is None:
            buffer = self.register(source)
        else:
            buffer = self.register_address(source, size_bytes)
        return lend(self._native, buffer, name=name, read_only=read_only, timeout_s=self._timeout_s)

    def register(self, source: Any) -> Buffer:
        """Let batches use an object's memory, e.g. a tensor's; see Buffer.of_object."""
        return Buffer.of_object(self._native, source)

    def register_address(self, address: int, size_bytes: int, owner: object = None) -> Buffer:
        """Let batches use raw memory; see Buffer.of_address."""
        return Buffer.of_address(self._native, address, size_bytes, owner)

    def open_segment(
        self,
        endpoint: str,
        segment: int | str,
        *,
        engine_id: int = 0,
        timeout_s: float | None = None,
    ) -> RemoteSegment:
        """Open a peer's segment, by id or name. Blocks, without the GIL. Cheap when it is open.

        Args:
            endpoint: where the peer listens.
            segment: which one of its segments: its id, or its name.
            engine_id: which engine it has to be; 0: whoever listens there.
            timeout_s: default: the engine's.

        Raises:
            ValueError: the endpoint names no host and port.
            TypeError: the segment is neither a number nor a name.
            WrongPeer: another engine than `engine_id` listens there.
            TransferError: the peer has no such segment.
            Fenced: the peer has revoked this process; rotate(), then open again.
            PeerUnreachable, TransferTimeout, WireError: there is no engine of ours there.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        refuse_wildcard("endpoint", endpoint)
        if not isinstance(segment, int | str):
            raise TypeError(f"segment is {segment!r}; its id, a number, or its name is needed")
        with native_errors:
            remote = self._native.open_segment(endpoint, segment, limit_s, engine_id)
        return RemoteSegment(self._native, remote, self._timeout_s)

    def statistics(self) -> tuple[PathStatistics, ...]:
        """Return what each path to each peer has done so far."""
        return tuple(map(path_statistics, self._native.statistics()))

    def notifications(self, limit: int = 1000) -> list[Notification]:
        """Take what peers gave with their batches, the oldest first. Does not block.

        Up to 4,096 wait here; while there are so many, peers get NotNotified.

        Raises:
            TransferError: the engine is closed, and none is left.
        """
        with native_errors:
            taken = self._native.take_notifications(limit)
        return [Notification(peer_id, data) for peer_id, data in taken]

    async def next_notification(self) -> Notification:
        """Wait in asyncio for the next notification and take it; see notifications."""
        while not (taken := self.notifications(1)):
            await readable(self._native.notification_fd())
        return taken[0]

    def fence(self, peer_id: int, *, timeout_s: float) -> bool:
        """Bar a peer id for ever; return whether it can write nothing of this engine any more.

        Blocks, without the GIL, until the process has unmapped this engine's memory or is dead:
        True; or until `timeout_s` has passed: False. The bar stays, and a later call waits on.
        """
        with native_errors:
            return self._native.fence(peer_id, timeout_s)

    def rotate(self) -> int:
        """Take a new peer id, and return it.

        Everything that was opened under the old one is given back; its operations raise Fenced.
        """
        with native_errors:
            return self._native.rotate()

    def close(self) -> None:
        """End everything; whoever is blocked in a call gets TransferError. Idempotent."""
        self._native.close()


def _create(config: TransferConfig, choice: Choice) -> _native.Engine:
    processors = len(os.sched_getaffinity(0))
    try:
        return _native.Engine.create(
            listen=config.listen,
            use_shm=config.same_host == "shm",
            io_threads=config.io_threads,
            addresses=choice.addresses,
            serve_threads=config.serve_threads or min(4, processors),
            copy_threads=min(4, processors - 1) if config.copy_threads < 0 else config.copy_threads,
            slice_bytes=config.slice_bytes,
            preferred=choice.preferred,
        )
    except _native.Error as error:
        code, message, _ = error.args
        if code not in (Code.kSystem, Code.kInvalidArgument):
            raise
        named = [f" {_bracketed(address)}:" for address in choice.addresses]
        is_further = any(each in message for each in (*named, " addresses;"))
        key = "addresses" if is_further else "listen"
        raise ConfigError(f"transfer.{key}: {explained(message)}") from error


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
