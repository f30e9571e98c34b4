"""How long local memory is held, and what may be registered."""

from __future__ import annotations

import gc
import os
import random
import weakref

import pytest

from mooncake_core.errors import BufferNotRegistered
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers

MIB = 1 << 20


def rss_kib() -> int:
    with open("/proc/self/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith("VmRSS")))


@pytest.mark.parametrize("transport", ["shm"])
def test_ten_thousand_registrations_of_one_buffer_leave_memory_flat(
    engine: TransferEngine,
) -> None:
    memory = bytearray(MIB)

    def register(count: int) -> None:
        for buffer in [engine.register(memory) for _ in range(count)]:
            buffer.close()

    register(10_000)
    gc.collect()
    before_kib = rss_kib()
    for _ in range(3):
        register(10_000)
    gc.collect()
    assert rss_kib() - before_kib < 1024


def test_registrations_overlap_in_every_way_and_end_one_by_one(
    engine: TransferEngine, peer: Peer
) -> None:
    """What is registered is what some buffer covers that is still open."""
    memory = bytearray(1000)
    view = memoryview(memory)
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 1000))
    rng = random.Random(4)
    whole = engine.register(memory)
    buffers = []
    for _ in range(60):
        first, last = sorted(rng.sample(range(1001), 2))
        buffers.append((first, last, engine.register(view[first:last])))
    base = whole.address
    whole.close()
    while buffers:
        first, last, buffer = buffers.pop(rng.randrange(len(buffers)))
        remote.write(numbers(base + first), numbers(first), numbers(last - first))
        buffer.close()
        covered = {at for first, last, _ in buffers for at in range(first, last)}
        for _ in range(5):
            at, length = rng.randrange(1000), rng.randrange(1, 50)
            length = min(length, 1000 - at)
            batch = numbers(base + at), numbers(at), numbers(length)
            if covered.issuperset(range(at, at + length)):
                remote.read(*batch)
            else:
                with pytest.raises(BufferNotRegistered):
                    remote.read(*batch)


def test_pieces_may_begin_and_end_anywhere(engine: TransferEngine, peer: Peer) -> None:
    content = os.urandom(4096)
    segment_id = peer.call("create", 8192)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    target = bytearray(4096)
    with engine.register(content) as source, engine.register(target) as sink:
        for at, offset, length in [(1, 3, 1), (7, 4091, 11), (4095, 8191, 1), (13, 17, 4001)]:
            remote.write(numbers(source.address + at), numbers(offset), numbers(length))
            remote.read(numbers(sink.address + at), numbers(offset), numbers(length))
            assert target[at : at + length] == content[at : at + length]


class Memory(bytearray):
    """One that weak references can watch."""


def test_memory_whose_buffer_is_dropped_in_flight_lives_until_the_batch_has_ended(
    engine: TransferEngine, peer: Peer
) -> None:
    size = 16 * MIB
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", size))
    for op in ("read", "write") * 3:
        memory = Memory(size)
        alive = weakref.ref(memory)
        buffer = engine.register(memory)
        submit = remote.submit_read if op == "read" else remote.submit_write
        transfers = [submit(numbers(buffer.address), numbers(0), numbers(size)) for _ in range(3)]
        address = buffer.address
        del buffer, memory
        gc.collect()
        churn = [bytearray(size) for _ in range(2)]  # would take the place of what was freed
        for transfer in transfers:
            transfer.wait()
        del transfers, transfer, churn
        gc.collect()
        assert alive() is None
        with pytest.raises(BufferNotRegistered):
            remote.write(numbers(address), numbers(0), numbers(size))
