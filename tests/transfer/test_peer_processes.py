"""Processes that are killed, stopped, continued and started again, at points of a transfer."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

import pytest

from mooncake_core.errors import MooncakeError, PeerUnreachable, TransferTimeout
from mooncake_core.transfer import RemoteSegment, TransferEngine
from tests.transfer.peer import Peer, numbers, wait_until

MIB = 1 << 20
SIZE = 32 * MIB
LIMIT_S = 0.5
TCP = ("tcp", "paths")
OPS = ("read", "write")


@pytest.fixture(params=["shm", "lent", "tcp", "paths"])
def transport(request: pytest.FixtureRequest) -> str:
    """lent: by process_vm_readv and process_vm_writev; paths: over TCP between two addresses."""
    return str(request.param)


class Work:
    """One batch after another on a thread of its own, until one fails."""

    def __init__(
        self, engine: TransferEngine, remote: RemoteSegment, op: str, limit_s: float = 60
    ) -> None:
        self.memory = engine.create_segment(SIZE)
        self.error: MooncakeError | None = None
        self.count = 0
        self.started_s = self.failed_s = 0.0
        """Of the batch that failed."""
        move = remote.read if op == "read" else remote.write
        batch = numbers(self.memory.address), numbers(0), numbers(SIZE)

        def run() -> None:
            try:
                while True:
                    self.started_s = time.monotonic()
                    move(*batch, timeout_s=limit_s)
                    self.count += 1
            except MooncakeError as error:
                self.error, self.failed_s = error, time.monotonic()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        wait_until(lambda: self.count > 0)

    def join(self) -> MooncakeError:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the batch hangs"
        assert self.error is not None
        return self.error


@pytest.fixture
def opened(engine: TransferEngine, transport: str) -> Callable[..., RemoteSegment]:
    """Open new memory of a peer."""

    def open_it(peer: Peer, size: int = SIZE) -> RemoteSegment:
        if transport == "lent":
            segment_id = peer.call("lend", bytes(size), "", False)
        else:
            segment_id = peer.call("create", size)
        remote = engine.open_segment(peer.call("endpoint"), segment_id)
        assert remote.transport == ("tcp" if transport in TCP else "shm")
        return remote

    return open_it


def assert_every_byte_moves(engine: TransferEngine, peer: Peer) -> None:
    """Both ways, to a segment that the peer makes now."""
    size = 2 * MIB + 5
    content, target = random.Random(1).randbytes(size), bytearray(size)
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", size))
    with engine.register(content) as source, engine.register(target) as sink:
        remote.write(numbers(source.address), numbers(0), numbers(size))
        remote.read(numbers(sink.address), numbers(0), numbers(size))
    assert target == content


@pytest.mark.parametrize("op", OPS)
def test_a_peer_that_is_killed_while_bytes_move(
    engine: TransferEngine,
    opened: Callable[..., RemoteSegment],
    start_peer: Callable[..., Peer],
    op: str,
) -> None:
    peer = start_peer()
    endpoint = peer.call("endpoint")
    work = Work(engine, opened(peer), op)
    killed_s = time.monotonic()
    peer.kill()
    error = work.join()
    assert type(error) is PeerUnreachable
    assert work.failed_s - killed_s < 2
    left = bytes(work.memory.buffer)
    assert_every_byte_moves(engine, start_peer(listen=endpoint))
    assert bytes(work.memory.buffer) == left


@pytest.mark.parametrize("op", OPS)
def test_a_peer_that_is_killed_between_two_transfers(
    engine: TransferEngine,
    opened: Callable[..., RemoteSegment],
    start_peer: Callable[..., Peer],
    op: str,
) -> None:
    peer = start_peer()
    endpoint = peer.call("endpoint")
    remote = opened(peer, 4096)
    with engine.register(bytearray(b"ours" * 1024)) as buffer:
        batch = numbers(buffer.address), numbers(0), numbers(4096)
        move = remote.read if op == "read" else remote.write
        move(*batch)
        peer.kill()
        for _ in range(2):
            started_s = time.monotonic()
            with pytest.raises(PeerUnreachable) as caught:
                move(*batch, timeout_s=30)
            assert time.monotonic() - started_s < 2
            assert not caught.value.is_dirty or op == "write"
        again = start_peer(listen=endpoint)
        with pytest.raises(PeerUnreachable):  # what was opened was of the process that died
            move(*batch)
    assert_every_byte_moves(engine, again)


def test_a_peer_that_is_killed_before_it_answers_an_opening(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    peer = start_peer()
    endpoint, segment_id = peer.call("endpoint"), peer.call("create", 4096)
    errors: list[MooncakeError] = []

    def open_it() -> None:
        try:
            engine.open_segment(endpoint, segment_id, timeout_s=30)
        except MooncakeError as error:
            errors.append(error)

    with peer.stopped():
        thread = threading.Thread(target=open_it)
        thread.start()
        wait_until(lambda: has_connection_to(endpoint))
        peer.kill()
        thread.join(5)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [PeerUnreachable]
    assert_every_byte_moves(engine, start_peer(listen=endpoint))


def has_connection_to(endpoint: str) -> bool:
    """Whether this host has an established TCP connection to it."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in list(table)[1:]]
    return any(row[2].endswith(port) and row[3] == "01" for row in rows)


def test_a_stopped_peer_does_not_open_and_does_when_it_goes_on(
    engine: TransferEngine, peer: Peer
) -> None:
    endpoint, segment_id = peer.call("endpoint"), peer.call("create", 4096)
    with peer.stopped():
        started_s = time.monotonic()
        with pytest.raises(TransferTimeout):
            engine.open_segment(endpoint, segment_id, timeout_s=LIMIT_S)
        assert LIMIT_S <= time.monotonic() - started_s < 1.1 * LIMIT_S + 0.25
    assert engine.open_segment(endpoint, segment_id).size_bytes == 4096


@pytest.mark.parametrize("op", OPS)
def test_a_peer_that_is_stopped_while_bytes_move(
    engine: TransferEngine,
    opened: Callable[..., RemoteSegment],
    peer: Peer,
    transport: str,
    op: str,
) -> None:
    """Mapped memory needs nobody on the other side; over the network the deadline ends it."""
    work = Work(engine, opened(peer), op, limit_s=1.0)
    with peer.stopped():
        if transport not in TCP:
            count = work.count
            wait_until(lambda: work.count > count + 2)
        else:
            error = work.join()
            assert type(error) is TransferTimeout
            assert error.is_dirty is (op == "write")
            assert 1.0 <= work.failed_s - work.started_s < 1.35
            left = bytes(work.memory.buffer)
    if transport in TCP:
        assert_every_byte_moves(engine, peer)  # by when it has said what it had to say
        assert bytes(work.memory.buffer) == left
    else:
        peer.kill()
        assert type(work.join()) is PeerUnreachable


@pytest.mark.parametrize("op", OPS)
def test_a_peer_that_is_stopped_and_then_killed_is_reported_at_once(
    engine: TransferEngine,
    opened: Callable[..., RemoteSegment],
    start_peer: Callable[..., Peer],
    op: str,
) -> None:
    peer = start_peer()
    endpoint = peer.call("endpoint")
    work = Work(engine, opened(peer), op)
    with peer.stopped():
        killed_s = time.monotonic()
        peer.kill()
        assert type(work.join()) is PeerUnreachable
        assert work.failed_s - killed_s < 2
    assert_every_byte_moves(engine, start_peer(listen=endpoint))


def test_a_client_that_is_killed_while_it_writes_hurts_nobody_else(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    size = 8 * MIB
    segment = engine.create_segment(2 * size)
    segment.buffer[:] = b"\x11" * (2 * size)
    for mark in (b"\x22", b"\x33"):
        writer = start_peer()
        baseline = len(os.listdir("/proc/self/fd"))
        writer.call("open", engine.endpoint, segment.id, mark * size)
        writer.send("write_until_refused")
        wait_until(lambda mark=mark: segment.buffer[size - 1] == mark[0])
        writer.kill()
        wait_until(lambda before=baseline: len(os.listdir("/proc/self/fd")) == before)
    assert segment.buffer[size:] == b"\x11" * size
    quiet = bytes(segment.buffer)
    assert_every_byte_moves(engine, start_peer())
    assert segment.buffer == quiet
