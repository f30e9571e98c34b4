"""Transfers that are awaited leave the loop free."""

import asyncio
import time

from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers

SIZE = 32 << 20


async def lags() -> list[float]:
    """Return how late the loop was, each millisecond, until this is cancelled."""
    found: list[float] = []
    try:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.001)
            found.append(time.monotonic() - before_s - 0.001)
    except asyncio.CancelledError:
        return found


async def test_the_loop_runs_while_transfers_are_awaited(
    engine: TransferEngine, peer: Peer
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", SIZE))
    own = engine.create_segment(SIZE)
    watching = asyncio.create_task(lags())
    for _ in range(5):
        batch = numbers(own.address), numbers(0), numbers(SIZE)
        await asyncio.gather(remote.submit_write(*batch), remote.submit_read(*batch))
    watching.cancel()
    found = sorted(await watching)
    # The median: a machine that is busy lets anybody wait now and then.
    assert found[len(found) // 2] < 0.02, found[-5:]


async def test_many_small_transfers_are_awaited_at_once(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", 1 << 20)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    own = engine.create_segment(1 << 20)
    own.buffer[:] = bytes(range(256)) * 4096
    await asyncio.gather(
        *(
            remote.submit_write(numbers(own.address + at), numbers(at), numbers(1024))
            for at in range(0, 1 << 20, 1024)
        )
    )
    assert peer.call("look", segment_id, 0, 1 << 20) == bytes(own.buffer)
