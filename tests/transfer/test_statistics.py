"""What engines count, and what errors say about the target of a write."""

from collections.abc import Callable

import pytest

from mooncake_core.errors import BufferNotRegistered, PeerUnreachable, TransferTimeout
from mooncake_core.transfer import PathStatistics, TransferEngine
from tests.transfer.peer import Peer, numbers

MIB = 1 << 20


def only(engine: TransferEngine, transport: str) -> PathStatistics:
    (path,) = [path for path in engine.statistics() if path.transport == transport]
    return path


def test_a_path_is_named_by_its_ends(engine: TransferEngine, peer: Peer, transport: str) -> None:
    assert engine.statistics() == ()
    engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    path = only(engine, transport)
    assert path.peer == peer.call("endpoint")
    assert path.state == "up" and path.connections >= 1


def test_a_path_that_is_let_go_of_keeps_its_counts(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", MIB))
    own = engine.create_segment(MIB)
    remote.write(numbers(own.address), numbers(0), numbers(MIB))
    before = only(engine, transport)
    engine.rotate()
    del remote
    after = only(engine, transport)
    assert (after.state, after.connections) == ("gone", 0)
    assert after.written_bytes == before.written_bytes
    engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    assert only(engine, transport).state == "up"
    assert only(engine, transport).written_bytes == before.written_bytes


def test_refused_batches_and_reads_are_never_dirty(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    with pytest.raises(BufferNotRegistered) as refused:
        remote.write(numbers(4096), numbers(0), numbers(1))
    assert not refused.value.is_dirty
    own = engine.create_segment(4096)
    peer.kill()
    with pytest.raises(PeerUnreachable) as unreachable:
        remote.read(numbers(own.address), numbers(0), numbers(4096))
    assert not unreachable.value.is_dirty


@pytest.mark.parametrize("transport", ["tcp"])
def test_a_write_that_timed_out_is_dirty(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    peer, size = start_peer(), 32 * MIB  # more than fits any socket's buffers
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", size))
    own = engine.create_segment(size)
    with peer.stopped(), pytest.raises(TransferTimeout) as late:
        remote.write(numbers(own.address), numbers(0), numbers(size), timeout_s=0.2)
    assert late.value.is_dirty
