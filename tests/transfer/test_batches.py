"""Batches between two processes, over each transport."""

import array
import asyncio
import itertools
import random
import threading
import time

import pytest

from mooncake_core.errors import BufferNotRegistered, TransferError
from mooncake_core.transfer import TransferEngine, crc32c
from tests.transfer.peer import Peer, numbers

MIB = 1 << 20


def shifted(starts: list[int], by: int) -> "array.array[int]":
    return array.array("Q", [start + by for start in starts])


def test_the_transport_is_the_one_that_was_asked_for(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    assert remote.transport == transport
    assert remote.size_bytes == 4096


def test_written_bytes_arrive_and_read_bytes_are_the_owners(
    engine: TransferEngine, peer: Peer
) -> None:
    segment_id = peer.call("create", 3 * MIB)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    content = random.Random(1).randbytes(2 * MIB + 13)
    with engine.register(content) as source:
        remote.write(numbers(source.address), numbers(7), numbers(len(content)))
    assert peer.call("look", segment_id, 7, len(content)) == content
    assert peer.call("look", segment_id, 0, 7) == bytes(7)

    target = bytearray(len(content))
    with engine.register(target) as buffer:
        remote.read(numbers(buffer.address), numbers(7), numbers(len(content)))
    assert target == content


def test_a_batch_of_five_thousand_pieces_lands_piece_by_piece(
    engine: TransferEngine, peer: Peer
) -> None:
    count, length = 5_000, 300
    segment_id = peer.call("create", count * length)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    content = random.Random(2).randbytes(count * length)
    order = list(range(count))
    random.Random(3).shuffle(order)
    lengths = array.array("Q", [length]) * count
    offsets = array.array("Q", [index * length for index in order])
    with engine.register(content) as source:
        addresses = array.array("Q", [source.address + index * length for index in order])
        remote.write(addresses, offsets, lengths)
    assert crc32c(peer.call("look", segment_id, 0, count * length)) == crc32c(content)

    target = bytearray(count * length)
    with engine.register(target) as buffer:
        addresses = array.array("Q", [buffer.address + index * length for index in order])
        remote.read(addresses, offsets, lengths)
    assert target == content


def test_empty_batches_and_empty_pieces_are_fine(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    remote.read(numbers(), numbers(), numbers())
    remote.write(numbers(0, 12345), numbers(4096, 0), numbers(0, 0))


def test_many_threads_at_once_read_what_they_wrote(engine: TransferEngine, peer: Peer) -> None:
    threads, share, rounds = 8, 300_000, 8
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", threads * share))
    wrong: list[int] = []

    def work(index: int) -> None:
        rng = random.Random(index)
        for _ in range(rounds):
            content, target = rng.randbytes(share), bytearray(share)
            cuts = [0, *sorted(rng.sample(range(1, share), 40)), share]
            starts = cuts[:-1]
            lengths = array.array("Q", [b - a for a, b in itertools.pairwise(cuts)])
            offsets = shifted(starts, index * share)
            with engine.register(content) as source, engine.register(target) as sink:
                remote.write(shifted(starts, source.address), offsets, lengths)
                remote.read(shifted(starts, sink.address), offsets, lengths)
            if target != content:
                wrong.append(index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_own_segments_are_local_memory(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", 4096)
    peer.call("fill", segment_id, b"theirs")
    own = engine.create_segment(4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    remote.read(numbers(own.address + 10), numbers(0), numbers(6))
    assert bytes(own.buffer[10:16]) == b"theirs"


def test_an_engine_reaches_its_own_segments(engine: TransferEngine) -> None:
    own = engine.create_segment(4096)
    own.buffer[:4] = b"mine"
    remote = engine.open_segment(engine.endpoint, own.id)
    remote.read(numbers(own.address + 100), numbers(0), numbers(4))
    assert bytes(own.buffer[100:104]) == b"mine"


def test_pieces_outside_the_remote_segment_are_refused(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    with engine.register(bytearray(8192)) as buffer:
        for offset, length in [(4096, 1), (0, 4097), (4000, 97), (2**64 - 1, 2), (1, 2**64 - 1)]:
            with pytest.raises(ValueError, match="outside the remote segment"):
                remote.write(numbers(buffer.address), numbers(offset), numbers(length))


def test_local_memory_outside_every_buffer_is_refused(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    buffer = engine.register(bytearray(100))
    for address, length in [(buffer.address, 101), (buffer.address - 1, 2), (1, 1)]:
        with pytest.raises(BufferNotRegistered, match=f"{length} bytes at {address:#x}"):
            remote.read(numbers(address), numbers(0), numbers(length))
    buffer.close()
    with pytest.raises(BufferNotRegistered):
        remote.read(numbers(buffer.address), numbers(0), numbers(100))


def test_unknown_segments_are_named(engine: TransferEngine, peer: Peer) -> None:
    with pytest.raises(TransferError, match="has no segment 4711"):
        engine.open_segment(peer.call("endpoint"), 4711)


def test_a_closed_segment_ends_operations_on_it(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", 4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    with engine.register(bytearray(16)) as buffer:
        batch = numbers(buffer.address), numbers(0), numbers(16)
        remote.write(*batch)
        peer.call("close_segment", segment_id)
        with pytest.raises(TransferError, match="segment"):
            remote.write(*batch)
        other = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
        other.write(*batch)


@pytest.mark.parametrize("wrong", [array.array("I", [0]), array.array("q", [0]), [0], b"12345678"])
def test_arrays_of_another_type_are_refused(
    engine: TransferEngine, peer: Peer, wrong: object
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    with pytest.raises(TypeError):
        remote.read(wrong, numbers(0), numbers(0))


def test_arrays_of_unequal_length_are_refused(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    with pytest.raises(ValueError, match="equally many"):
        remote.read(numbers(0, 0), numbers(0), numbers(0))


async def test_submitted_batches_are_awaited_together(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", 64 * 1000)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    content = random.Random(4).randbytes(64 * 1000)
    with engine.register(content) as source:
        transfers = [
            remote.submit_write(
                numbers(source.address + at), numbers(at), numbers(1000), timeout_s=10
            )
            for at in range(0, 64 * 1000, 1000)
        ]
        await asyncio.gather(*transfers, *transfers)
    assert all(transfer.done() for transfer in transfers)
    assert peer.call("look", segment_id, 0, len(content)) == content


def test_a_submitted_batch_that_fails_says_so_to_each_who_waits(
    engine: TransferEngine, peer: Peer
) -> None:
    segment_id = peer.call("create", 4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    peer.call("close_segment", segment_id)
    with engine.register(bytearray(16)) as buffer:
        transfer = remote.submit_write(numbers(buffer.address), numbers(0), numbers(16))
        for _ in range(2):
            with pytest.raises(TransferError, match="segment"):
                transfer.wait(10)


def test_other_threads_run_while_a_batch_blocks(engine: TransferEngine, peer: Peer) -> None:
    """The peer is stopped, so the call blocks; this thread must still come to run."""
    endpoint, segment_id = peer.call("endpoint"), peer.call("create", 4096)
    ended = threading.Event()

    def blocked() -> None:
        with pytest.raises(TransferError):
            engine.open_segment(endpoint, segment_id, timeout_s=1.0)
        ended.set()

    with peer.stopped():
        started_s = time.monotonic()
        thread = threading.Thread(target=blocked)
        thread.start()
        assert not ended.is_set()
        assert time.monotonic() - started_s < 0.5
        thread.join()
