"""What peers are told after a batch."""

import asyncio

import pytest

from mooncake_core.errors import Fenced, NotNotified, TransferError
from mooncake_core.transfer import Notification, Segment, TransferEngine
from tests.transfer.peer import Peer, numbers


@pytest.fixture
def segment(engine: TransferEngine, peer: Peer) -> Segment:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"content")
    return segment


def test_a_notification_comes_with_the_bytes_and_the_name_of_the_sender(
    engine: TransferEngine, peer: Peer, segment: Segment
) -> None:
    assert engine.notifications() == []
    peer.call("write_and_notify", b"layer 7")
    assert bytes(segment.buffer[:7]) == b"content"
    assert engine.notifications() == [Notification(peer.call("peer_id"), b"layer 7")]
    assert engine.notifications() == []


def test_they_come_in_order_and_as_many_as_are_asked_for(
    engine: TransferEngine, peer: Peer, segment: Segment
) -> None:
    notes = [b"", b"\0" * 4096, b"last"]
    for note in notes:
        peer.call("write_and_notify", note)
    peer.call("write_and_notify", None)
    taken = engine.notifications(2) + engine.notifications(0) + engine.notifications(100)
    assert [each.data for each in taken] == notes


async def test_they_are_awaited(engine: TransferEngine, peer: Peer, segment: Segment) -> None:
    first = asyncio.create_task(engine.next_notification())
    second = asyncio.create_task(engine.next_notification())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not first.done()
    for note in (b"a", b"b", b"c"):
        await asyncio.to_thread(peer.call, "write_and_notify", note)
    got = {(await first).data, (await second).data, (await engine.next_notification()).data}
    assert got == {b"a", b"b", b"c"}


async def test_closing_ends_the_wait(engine: TransferEngine) -> None:
    waiting = asyncio.create_task(engine.next_notification())
    await asyncio.sleep(0)
    await asyncio.to_thread(engine.close)
    with pytest.raises(TransferError, match="closed"):
        await waiting


def test_one_that_is_too_long_is_refused_before_anything_moves(
    engine: TransferEngine, peer: Peer
) -> None:
    segment_id = peer.call("create", 4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    own = engine.create_segment(4096)
    own.buffer[0] = 1
    with pytest.raises(ValueError, match="4097 bytes; at most 4096"):
        remote.write(numbers(own.address), numbers(0), numbers(1), notify=bytes(4097))
    assert peer.call("look", segment_id, 0, 1) == b"\0"


def test_a_full_queue_refuses_the_notification_and_keeps_the_bytes(
    engine: TransferEngine, peer: Peer, segment: Segment
) -> None:
    peer.call("notify_until_full")
    segment.buffer[:7] = bytes(7)
    with pytest.raises(NotNotified, match="has landed") as refused:
        peer.call("write_and_notify", b"one more")
    assert refused.value.retryable
    assert bytes(segment.buffer[:7]) == b"content"
    assert len(engine.notifications(1_000_000)) == 4096
    peer.call("write_and_notify", b"again")
    assert [each.data for each in engine.notifications()] == [b"again"]


def test_submitted_and_prepared_batches_notify_too(
    engine: TransferEngine, segment: Segment
) -> None:
    remote = engine.open_segment(engine.endpoint, segment.id)
    batch = numbers(segment.address), numbers(100), numbers(10)
    remote.submit_write(*batch, notify=b"submitted").wait(20)
    remote.submit_read(*batch, notify=b"read").wait(20)
    prepared = remote.prepare_write(*batch)
    prepared.run(notify=b"run")
    prepared.submit(notify=b"posted").wait(20)
    empty = numbers(), numbers(), numbers()
    remote.write(*empty, notify=b"nothing else")
    assert [each.data for each in engine.notifications()] == [
        b"submitted",
        b"read",
        b"run",
        b"posted",
        b"nothing else",
    ]


def test_a_fenced_peer_notifies_nobody(
    engine: TransferEngine, peer: Peer, segment: Segment
) -> None:
    peer.call("write_and_notify", b"before")
    assert engine.fence(peer.call("peer_id"), timeout_s=10)
    with pytest.raises(Fenced):
        peer.call("write_and_notify", b"after")
    assert [each.data for each in engine.notifications()] == [b"before"]
