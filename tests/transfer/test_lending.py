"""Memory that was there before and is lent to peers, over each transport."""

import array
import gc
import random
import threading
import weakref

import numpy as np
import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import PeerUnreachable, ReadOnly, TransferError, TransferTimeout
from mooncake_core.transfer import RemoteSegment, TransferEngine
from tests.transfer.peer import Peer, numbers, wait_until

MIB = 1 << 20


def test_lent_memory_is_written_and_read_where_it_is(engine: TransferEngine, peer: Peer) -> None:
    lent = np.zeros(3 * MIB, dtype=np.float32)
    segment = engine.lend(lent)
    assert (segment.address, segment.size_bytes) == (lent.ctypes.data, lent.nbytes)
    content = random.Random(1).randbytes(8 * MIB + 5)
    peer.call("open", engine.endpoint, segment.id, content)
    peer.call("write", 1001)
    view = lent.view(np.uint8)
    assert view[1001 : 1001 + len(content)].tobytes() == content
    assert not view[:1001].any() and not view[1001 + len(content) :].any()
    lent[:] = 7
    assert peer.call("read", 4) == lent.tobytes()[4 : 4 + len(content)]
    assert segment.close()


def test_raw_memory_can_be_lent_by_its_address(engine: TransferEngine, peer: Peer) -> None:
    lent = array.array("Q", [1, 2, 3, 4])
    segment = engine.lend(lent.buffer_info()[0] + 8, 16)
    peer.call("open", engine.endpoint, segment.id, bytes(16))
    peer.call("write")
    assert lent.tolist() == [1, 0, 0, 4]
    assert segment.close()


def test_thousands_of_pieces_of_lent_memory_move_in_one_batch(
    engine: TransferEngine, peer: Peer
) -> None:
    content = random.Random(2).randbytes(5000 * 33)
    segment_id = peer.call("lend", content, "", False)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    local = bytearray(len(content))
    buffer = engine.register(local)
    order = random.Random(3).sample(range(5000), 5000)
    offsets = array.array("Q", [33 * i for i in order])
    addresses = array.array("Q", [buffer.address + 33 * i for i in range(5000)])
    lengths = array.array("Q", [33] * 5000)
    remote.read(addresses, offsets, lengths)
    assert local == b"".join(content[33 * i : 33 * i + 33] for i in order)
    local[:] = bytes(reversed(local))
    remote.write(addresses, offsets, lengths)
    written = peer.call("look", segment_id, 0, len(content))
    assert local == b"".join(written[33 * i : 33 * i + 33] for i in order)


def test_memory_lent_for_reading_is_never_written(engine: TransferEngine, peer: Peer) -> None:
    lent = bytearray(b"before")
    segment = engine.lend(lent, read_only=True)
    peer.call("open", engine.endpoint, segment.id, b"after!")
    with pytest.raises(ReadOnly, match="for reading only"):
        peer.call("write")
    assert lent == b"before" == peer.call("read")
    assert engine.open_segment(engine.endpoint, segment.id).is_read_only


def test_memory_that_is_read_only_itself_is_lent_for_reading(
    engine: TransferEngine, peer: Peer
) -> None:
    with pytest.raises(ValueError, match="read_only=True"):
        engine.lend(b"constant")
    segment = engine.lend(b"constant", read_only=True)
    peer.call("open", engine.endpoint, segment.id, bytes(8))
    assert peer.call("read") == b"constant" == bytes(segment.buffer)
    assert segment.buffer.readonly


def test_memory_that_is_not_there_cannot_be_lent(engine: TransferEngine) -> None:
    with pytest.raises(ValueError, match="no such memory"):
        engine.lend(4096, 100)
    with pytest.raises(ValueError, match="no range of memory"):
        engine.lend((1 << 64) - 4096, 5000)
    with pytest.raises(ValueError, match="needs size_bytes"):
        engine.lend(4096)
    with pytest.raises(ValueError, match="size of its own"):
        engine.lend(bytearray(5), 5)


def test_segments_are_opened_by_name(engine: TransferEngine, peer: Peer) -> None:
    endpoint = peer.call("endpoint")
    named = peer.call("lend", b"named", "ключ/0", False)
    assert engine.open_segment(endpoint, "ключ/0").id == named
    with pytest.raises(TransferError, match='has no segment named "other"'):
        engine.open_segment(endpoint, "other")
    with pytest.raises(TransferError, match="no segment has a name"):
        engine.open_segment(endpoint, "x" * 300)
    peer.call("close_segment", named)
    again = peer.call("lend", b"again", "ключ/0", False)
    assert engine.open_segment(endpoint, "ключ/0").id == again


def test_a_name_is_taken_once(engine: TransferEngine) -> None:
    first = engine.create_segment(100, name="pool")
    assert first.name == "pool"
    with pytest.raises(ValueError, match='named "pool" exists already'):
        engine.lend(bytearray(5), name="pool")
    with pytest.raises(ValueError, match="at most 255"):
        engine.create_segment(100, name="x" * 256)
    assert first.close()
    assert engine.lend(bytearray(5), name="pool").name == "pool"


def lend_array(engine: TransferEngine, size_bytes: int) -> tuple[object, "weakref.ref[object]"]:
    lent = np.zeros(size_bytes, dtype=np.uint8)
    return engine.lend(lent), weakref.ref(lent)


def test_lent_memory_is_kept_as_long_as_it_is_lent(engine: TransferEngine) -> None:
    segment, memory = lend_array(engine, 100)
    segment_id = segment.id  # type: ignore[attr-defined]
    assert memory() is not None
    del segment
    gc.collect()
    assert memory() is not None
    assert engine.open_segment(engine.endpoint, segment_id).size_bytes == 100
    engine.close()


@pytest.mark.parametrize("ending", ["wakes up", "dies"])
@pytest.mark.parametrize("use", ["read", "write"])
def test_memory_that_a_stopped_peer_holds_is_kept_until_it_lets_go(
    engine: TransferEngine, peer: Peer, transport: str, use: str, ending: str
) -> None:
    segment, memory = lend_array(engine, 4096)
    peer.call("open", engine.endpoint, segment.id, b"x")  # type: ignore[attr-defined]
    peer.call(use)
    with peer.stopped():
        is_tcp = transport == "tcp"  # nothing moves without this side
        assert segment.close(timeout_s=0.1) is is_tcp  # type: ignore[attr-defined]
        gc.collect()
        assert (memory() is None) is is_tcp
        if ending == "dies":
            peer.kill()
            assert segment.close(timeout_s=10)  # type: ignore[attr-defined]
    assert segment.close(timeout_s=10)  # type: ignore[attr-defined]
    gc.collect()
    assert memory() is None


def test_an_engine_that_closes_keeps_what_a_stopped_peer_holds(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    segment, memory = lend_array(engine, 4096)
    peer.call("open", engine.endpoint, segment.id, b"x")  # type: ignore[attr-defined]
    peer.call("write")
    with peer.stopped():
        engine.close()
        assert segment.close(timeout_s=0.1) is (transport == "tcp")  # type: ignore[attr-defined]
        del segment
        gc.collect()
        assert (memory() is None) is (transport == "tcp")


def test_closing_ends_a_copy_that_is_under_way(engine: TransferEngine, peer: Peer) -> None:
    lent = np.zeros(32 * MIB, dtype=np.uint8)
    segment = engine.lend(lent)
    peer.call("open", engine.endpoint, segment.id, b"\xff" * len(lent))
    peer.send("write_until_refused")
    wait_until(lambda: lent[-1] != 0)  # its first batch is there
    assert segment.close(timeout_s=10)
    lent[:] = 0
    assert peer.receive() in ("TransferError", "PeerUnreachable")  # the connection may be cut
    assert not lent.any()


def test_a_fenced_writer_of_lent_memory_writes_no_more(engine: TransferEngine, peer: Peer) -> None:
    lent = np.zeros(32 * MIB, dtype=np.uint8)
    segment = engine.lend(lent)
    peer.call("open", engine.endpoint, segment.id, b"\xff" * len(lent))
    peer_id = peer.call("peer_id")
    peer.send("write_until_refused")
    wait_until(lambda: lent[-1] != 0)
    assert engine.fence(peer_id, timeout_s=10)
    lent[:] = 0
    assert peer.receive() == "Fenced"
    assert not lent.any()
    assert segment.close(timeout_s=10)


def test_a_reader_of_lent_memory_holds_no_fence_up(engine: TransferEngine, peer: Peer) -> None:
    segment = engine.lend(bytearray(100))
    peer.call("open", engine.endpoint, segment.id, b"x")
    peer_id = peer.call("peer_id")
    with peer.stopped():
        assert engine.fence(peer_id, timeout_s=5)
    assert segment.close(timeout_s=10)


def write_for_ever(remote: RemoteSegment, batch: list[object], ended: list[TransferError]) -> None:
    try:
        while True:
            remote.write(*batch)
    except TransferError as error:
        ended.append(error)


def test_an_owner_that_dies_under_a_copy_is_unreachable(engine: TransferEngine, peer: Peer) -> None:
    size = 32 * MIB
    segment_id = peer.call("lend", bytes(size), "", False)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    local = engine.create_segment(size)
    local.buffer[:] = b"\x01" * size
    batch: list[object] = [numbers(local.address), numbers(0), numbers(size)]
    ended: list[TransferError] = []
    thread = threading.Thread(target=write_for_ever, args=(remote, batch, ended))
    thread.start()
    wait_until(lambda: peer.call("look", segment_id, size - 1, 1) != b"\x00")
    peer.kill()
    thread.join(20)
    assert not thread.is_alive() and isinstance(ended[0], PeerUnreachable)
    with pytest.raises(PeerUnreachable) as late:
        remote.read(*batch)
    assert not late.value.is_dirty


def test_an_owner_that_is_stopped_lends_on(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    segment_id = peer.call("lend", b"before", "", False)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    local = engine.create_segment(6)
    batch = numbers(local.address), numbers(0), numbers(6)
    remote.write(*batch)
    local.buffer[:] = b"after!"
    with peer.stopped():
        if transport == "shm":
            remote.write(*batch)
        else:
            with pytest.raises(TransferTimeout):
                remote.write(*batch, timeout_s=0.2)
    if transport == "shm":
        assert peer.call("look", segment_id, 0, 6) == b"after!"


def test_a_remote_segment_says_why_its_transport_was_taken(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    endpoint = peer.call("endpoint")
    shared = engine.open_segment(endpoint, peer.call("create", 100))
    lent = engine.open_segment(endpoint, peer.call("lend", b"x", "", False))
    if transport == "shm":
        assert "shares the memory" in shared.reason and "lends" in lent.reason
    else:
        assert shared.reason == lent.reason == "the peer is on this host, and same_host is network"


def test_many_engines_start_and_reach_each_other_at_once(transport: str) -> None:
    same_host = "shm" if transport == "shm" else "network"
    config = TransferConfig(same_host=same_host)  # type: ignore[arg-type]
    hub = TransferEngine(config)
    lent = array.array("Q", bytes(8 * 32))
    hub.lend(lent, name="hub")

    def join(index: int) -> None:
        engine = TransferEngine(config)
        own = engine.register(array.array("Q", [index + 1]))
        remote = engine.open_segment(hub.endpoint, "hub")
        assert remote.transport == transport
        remote.write(numbers(own.address), numbers(8 * index), numbers(8))
        engine.close()

    threads = [threading.Thread(target=join, args=(index,)) for index in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert lent.tolist() == list(range(1, 33))
    hub.close()
