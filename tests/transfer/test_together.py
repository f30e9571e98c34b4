"""Small batches that are carried out together, each with its own end."""

import time
from collections.abc import Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferCancelled, TransferTimeout
from mooncake_core.transfer import RemoteSegment, Segment, Transfer, TransferEngine
from tests.transfer.peer import Peer, numbers, wait_until

LARGE = 64 << 20  # more than fits any socket's buffers
SOON_S = 1.0  # many times what it takes, for a machine that is busy


@pytest.fixture
def network() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig(same_host="network", io_threads=1))
    yield engine
    engine.close()


@pytest.fixture
def transport() -> str:
    return "tcp"  # a copy in memory is over before it could be cancelled


@pytest.fixture
def opened(network: TransferEngine, peer: Peer) -> tuple[RemoteSegment, Segment]:
    remote = network.open_segment(peer.call("endpoint"), peer.call("create", LARGE))
    return remote, network.create_segment(LARGE)


def write(opened: tuple[RemoteSegment, Segment], size: int = LARGE) -> Transfer:
    remote, own = opened
    return remote.submit_write(numbers(own.address), numbers(0), numbers(size), timeout_s=60)


def test_one_of_many_that_are_carried_out_together_ends_alone(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    remote, own = opened
    with peer.stopped():
        first = write(opened)
        reads = [
            remote.submit_read(numbers(own.address), numbers(0), numbers(64), timeout_s=60)
            for _ in range(10)
        ]
        first.cancel()
        wait_until(first.done)
        assert not reads[-1].wait(0.05)
        reads[4].cancel()
        begun_s = time.monotonic()
        with pytest.raises(TransferCancelled):
            reads[4].wait(20)
        assert time.monotonic() - begun_s < SOON_S
        reads[7].cancel()
        with pytest.raises(TransferCancelled):
            reads[7].wait(SOON_S)
    others = [read for index, read in enumerate(reads) if index not in (4, 7)]
    assert all(read.wait(20) for read in others)


def test_one_that_runs_out_of_time_does_not_take_its_companions_along(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    remote, own = opened
    batch = numbers(own.address), numbers(0), numbers(64)
    with peer.stopped():
        first = write(opened)
        short, long = (remote.submit_read(*batch, timeout_s=limit_s) for limit_s in (0.5, 60))
        first.cancel()
        with pytest.raises(TransferTimeout):
            short.wait(20)
        assert not long.done()
    assert long.wait(20)


def test_a_cancelled_write_does_not_take_its_companions_along(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    remote, own = opened
    own.buffer[:640] = bytes(range(64)) * 10
    with peer.stopped():
        first = write(opened)
        writes = [
            remote.submit_write(
                numbers(own.address + 64 * i), numbers(64 * i), numbers(64), timeout_s=60
            )
            for i in range(10)
        ]
        first.cancel()
        wait_until(first.done)
        assert not writes[-1].wait(0.05)
        writes[4].cancel()
        with pytest.raises(TransferCancelled):
            writes[4].wait(20)
    assert all(one.wait(20) for i, one in enumerate(writes) if i != 4)
    landed = peer.call("look", remote.id, 0, 640)
    assert landed[:256] == own.buffer[:256] and landed[320:] == own.buffer[320:640]
