"""Who may write, and how that ends."""

import pytest

from mooncake_core.errors import Fenced
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers


def test_a_fenced_writer_is_told_and_works_again_under_a_new_id(
    engine: TransferEngine, peer: Peer
) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"before")
    peer.call("write")
    assert bytes(segment.buffer[:6]) == b"before"

    assert engine.fence(peer.call("peer_id"), timeout_s=10)
    segment.buffer[:6] = b"quiet!"
    for _ in range(2):
        with pytest.raises(Fenced):
            peer.call("write")
    with pytest.raises(Fenced):
        peer.call("open", engine.endpoint, segment.id, b"before")
    assert bytes(segment.buffer[:6]) == b"quiet!"

    old_id = peer.call("peer_id")
    assert peer.call("rotate") != old_id
    with pytest.raises(Fenced):
        peer.call("write")
    peer.call("open", engine.endpoint, segment.id, b"before")
    peer.call("write")
    assert bytes(segment.buffer[:6]) == b"before"


def test_a_writer_that_is_stopped_with_the_memory_mapped_is_fenced_by_its_death(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"x")
    peer.call("write")
    peer_id = peer.call("peer_id")
    with peer.stopped():
        is_tcp = transport == "tcp"  # its connection is closed from here
        assert engine.fence(peer_id, timeout_s=0.1) is is_tcp
        assert engine.fence(peer_id, timeout_s=0.1) is is_tcp
        peer.kill()
        assert engine.fence(peer_id, timeout_s=10)


def test_a_writer_that_wakes_up_after_the_fence_writes_nothing_more(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"x" * 4096)
    peer.call("write")
    peer_id = peer.call("peer_id")
    with peer.stopped():
        peer.send("write")
        engine.fence(peer_id, timeout_s=0.1)
    assert engine.fence(peer_id, timeout_s=10)
    with pytest.raises(Fenced):
        peer.receive()
    segment.buffer[:] = bytes(4096)
    with pytest.raises(Fenced):
        peer.call("write")
    assert bytes(segment.buffer) == bytes(4096)


def test_a_writer_in_the_middle_of_a_batch_is_fenced(engine: TransferEngine, peer: Peer) -> None:
    size = 32 << 20
    segment = engine.create_segment(size)
    peer.call("open", engine.endpoint, segment.id, b"\xff" * size)
    peer_id = peer.call("peer_id")
    peer.send("write_until_refused")
    while segment.buffer[size - 1] == 0:  # until its first batch is there
        pass
    assert engine.fence(peer_id, timeout_s=10)
    segment.buffer[:] = bytes(size)
    assert peer.receive() == "Fenced"
    assert not any(segment.buffer[::4096])


def test_readers_do_not_hold_a_fence_up(engine: TransferEngine, peer: Peer) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"x")
    peer_id = peer.call("peer_id")
    with peer.stopped():
        assert engine.fence(peer_id, timeout_s=5)


def test_a_fence_of_one_peer_leaves_the_others_alone(engine: TransferEngine, peer: Peer) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"still")
    assert engine.fence(peer.call("peer_id") ^ 1, timeout_s=5)
    peer.call("write")
    assert bytes(segment.buffer[:5]) == b"still"


def test_an_engine_can_fence_and_rotate_itself(engine: TransferEngine) -> None:
    segment = engine.create_segment(4096)
    remote = engine.open_segment(engine.endpoint, segment.id)
    batch = numbers(segment.address), numbers(100), numbers(10)
    remote.write(*batch)
    assert engine.fence(engine.peer_id, timeout_s=10)
    with pytest.raises(Fenced):
        remote.write(*batch)
    engine.rotate()
    engine.open_segment(engine.endpoint, segment.id).write(*batch)
