"""Submitted batches that are given up, and what becomes of those carried out together with them."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

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


def test_a_batch_under_way_ends_soon_and_says_that_its_target_is_dirty(
    opened: tuple[RemoteSegment, Segment], peer: Peer, network: TransferEngine
) -> None:
    with peer.stopped():
        transfer = write(opened)
        assert not transfer.wait(0.05)
        begun_s = time.monotonic()
        transfer.cancel()
        with pytest.raises(TransferCancelled) as cancelled:
            transfer.wait(20)
        assert time.monotonic() - begun_s < SOON_S
        assert cancelled.value.is_dirty


def test_a_cancelled_read_is_not_dirty(opened: tuple[RemoteSegment, Segment], peer: Peer) -> None:
    remote, own = opened
    with peer.stopped():
        transfer = remote.submit_read(numbers(own.address), numbers(0), numbers(LARGE))
        assert not transfer.wait(0.05)
        transfer.cancel()
        with pytest.raises(TransferCancelled) as cancelled:
            transfer.wait(20)
        assert not cancelled.value.is_dirty


def test_a_batch_that_waits_for_its_turn_ends_at_once_and_moves_nothing(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    with peer.stopped():
        first, second = write(opened), write(opened, 4096)  # the only thread is with the first
        second.cancel()
        assert second.done()
        with pytest.raises(TransferCancelled) as cancelled:
            second.wait(0)
        assert not cancelled.value.is_dirty
        first.cancel()
        with pytest.raises(TransferCancelled):
            first.wait(20)


def test_a_batch_that_has_ended_stays_as_it_is(opened: tuple[RemoteSegment, Segment]) -> None:
    transfer = write(opened)
    assert transfer.wait(20)
    transfer.cancel()
    assert transfer.wait(0)


def test_memory_may_be_unregistered_as_soon_as_the_cancelled_batch_has_ended(
    network: TransferEngine, peer: Peer
) -> None:
    remote = network.open_segment(peer.call("endpoint"), peer.call("create", LARGE))
    with peer.stopped():
        buffer = network.register(bytearray(LARGE))
        batch = numbers(buffer.address), numbers(0), numbers(LARGE)
        transfers = [remote.submit_write(*batch, timeout_s=60) for _ in range(3)]
        for transfer in reversed(transfers):
            transfer.cancel()
        buffer.close()  # waits for all of them
        wait_until(lambda: all(transfer.done() for transfer in transfers))


def test_a_batch_in_shared_memory_need_not_wait_for_an_owner_that_is_stopped(
    start_peer: Callable[..., Peer],
) -> None:
    with contextlib.closing(TransferEngine(TransferConfig())) as engine:
        peer = start_peer(same_host="shm")
        remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
        assert remote.transport == "shm"
        own = engine.create_segment(4096)
        batch = numbers(own.address), numbers(0), numbers(4096)
        with peer.stopped():
            transfers = [
                remote.submit_write(*batch, timeout_s=60),  # has to ask for writable memory
                remote.submit_read(*batch, timeout_s=60, notify=b"read"),
            ]
            assert not any(transfer.wait(0.05) for transfer in transfers)
            for transfer in transfers:
                transfer.cancel()
            for transfer in transfers:
                with pytest.raises(TransferCancelled) as cancelled:
                    transfer.wait(20)
                assert not cancelled.value.is_dirty


async def test_a_cancelled_task_goes_on_only_once_its_transfer_has_ended(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    with peer.stopped():
        transfer = write(opened)

        started = asyncio.Event()

        async def use() -> None:
            started.set()
            await transfer

        task = asyncio.create_task(use())
        await started.wait()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert transfer.done()
        with pytest.raises(TransferCancelled):
            transfer.wait(0)


async def test_a_time_limit_of_asyncio_cancels_the_transfer(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    with peer.stopped():
        transfer = write(opened)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(transfer, 0.05)
        assert transfer.done()


async def test_a_shielded_transfer_goes_on(
    opened: tuple[RemoteSegment, Segment], peer: Peer
) -> None:
    with peer.stopped():
        transfer = write(opened)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(transfer), 0.05)
        assert not transfer.done()
    await transfer


def test_all_that_wait_may_be_cancelled_from_other_threads(
    opened: tuple[RemoteSegment, Segment], peer: Peer, start_peer: Callable[..., Peer]
) -> None:
    with peer.stopped():
        first = write(opened)
        others = [write(opened, 64) for _ in range(1000)]
        for transfer in others:
            transfer.cancel()
        assert all(transfer.done() for transfer in others)
        first.cancel()
        with pytest.raises(TransferCancelled):
            first.wait(20)


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
