"""Batches that are checked once and carried out often."""

import array
import random
import threading

import pytest

from mooncake_core.errors import BufferNotRegistered, Fenced
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers


def test_each_run_moves_what_is_there_then(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", 4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    own = engine.create_segment(4096)
    prepared = remote.prepare_write(
        numbers(own.address + 8, own.address), numbers(100, 300), numbers(4, 4)
    )
    for round_ in range(3):
        own.buffer[:16] = bytes([round_]) * 16
        prepared.run()
        assert peer.call("look", segment_id, 100, 4) == bytes([round_]) * 4
        own.buffer[:16] = bytes([round_ + 100]) * 16
        prepared.submit().wait(20)
        assert peer.call("look", segment_id, 300, 4) == bytes([round_ + 100]) * 4


def test_pieces_that_follow_each_other_on_both_sides_become_one(engine: TransferEngine) -> None:
    own = engine.create_segment(100_000)
    remote = engine.open_segment(engine.endpoint, own.id)
    addresses = array.array("Q", [own.address + 10 * index for index in range(1000)])
    offsets = array.array("Q", [50_000 + 10 * index for index in range(1000)])
    lengths = array.array("Q", [10]) * 1000
    prepared = remote.prepare_read(addresses, offsets, lengths)
    assert (prepared.piece_count, prepared.size_bytes) == (1, 10_000)
    offsets[500] += 20_000
    assert remote.prepare_read(addresses, offsets, lengths).piece_count == 3
    lengths[0] = 0
    assert remote.prepare_read(addresses, offsets, lengths).piece_count == 3


def test_it_moves_the_same_as_the_batch_that_it_was_made_of(
    engine: TransferEngine, peer: Peer
) -> None:
    rng, size = random.Random(1), 200_000
    segment_id = peer.call("create", size)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    content = rng.randbytes(size)
    runs = [(at, rng.choice((0, 100))) for at in range(0, size, 100)]
    with engine.register(content) as source:
        remote.prepare_write(
            array.array("Q", [source.address + at for at, _ in runs]),
            array.array("Q", [at for at, _ in runs]),
            array.array("Q", [length for _, length in runs]),
        ).run()
    expected = b"".join(content[at : at + 100] if length else bytes(100) for at, length in runs)
    assert peer.call("look", segment_id, 0, size) == expected


def test_what_is_wrong_is_said_when_it_is_prepared(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    own = engine.create_segment(4096)
    with pytest.raises(ValueError, match="outside the remote segment"):
        remote.prepare_read(numbers(own.address), numbers(4096), numbers(1))
    with pytest.raises(BufferNotRegistered):
        remote.prepare_read(numbers(own.address + 4000), numbers(0), numbers(97))
    with pytest.raises(ValueError, match="equally many"):
        remote.prepare_read(numbers(), numbers(0), numbers(1))


def test_memory_that_was_unregistered_since_is_not_touched(
    engine: TransferEngine, peer: Peer
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    memory = bytearray(b"x" * 100)
    buffer = engine.register(memory)
    prepared = remote.prepare_read(numbers(buffer.address), numbers(0), numbers(100))
    buffer.close()
    for call in (prepared.run, prepared.submit):
        with pytest.raises(BufferNotRegistered):
            call()
    assert memory == b"x" * 100
    with engine.register(memory):
        prepared.run()
    assert memory == bytes(100)


def test_after_rotating_it_is_fenced(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    own = engine.create_segment(4096)
    prepared = remote.prepare_write(numbers(own.address), numbers(0), numbers(100))
    prepared.run()
    engine.rotate()
    with pytest.raises(Fenced) as fenced:
        prepared.run()
    assert not fenced.value.is_dirty


def test_threads_run_the_same_one_at_once(engine: TransferEngine, peer: Peer) -> None:
    segment_id, content = peer.call("create", 4096), bytes(range(256)) * 16
    peer.call("fill", segment_id, content)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    own = engine.create_segment(4096)
    prepared = remote.prepare_read(numbers(own.address), numbers(0), numbers(4096))

    def work() -> None:
        for _ in range(50):
            prepared.run()
            with engine.register(bytearray(10)):  # the table changes under it
                prepared.submit().wait(20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bytes(own.buffer) == content
