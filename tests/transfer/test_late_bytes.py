"""A write that failed must not land on one that came after it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferTimeout
from mooncake_core.transfer import TransferEngine
from tests.transfer.owner import Fault, Owner, fall_silent
from tests.transfer.peer import Peer, numbers

SIZE = 16 << 20
SMALL = 4096


@pytest.fixture(params=["tcp", "paths"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_write_after_one_that_timed_out_is_not_overtaken_by_it(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    peer = start_peer()
    segment_id = peer.call("create", SIZE)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    local = engine.create_segment(SIZE)
    batch = numbers(local.address), numbers(0), numbers(SIZE)
    for number in range(3):
        late, good = bytes([2 * number + 1]), bytes([2 * number + 2])
        local.buffer[:] = late * SIZE
        with peer.stopped(), pytest.raises(TransferTimeout) as failed:
            remote.write(*batch, timeout_s=0.1)
        assert failed.value.is_dirty
        local.buffer[:] = good * SIZE
        remote.write(*batch)
        assert peer.call("look", segment_id, 0, SIZE) == good * SIZE


def test_the_lane_of_a_failed_write_is_closed_before_the_next_write_begins() -> None:
    at_the_fence: list[bytes] = []

    def look(owner: Owner, link: socket.socket, answer: bytes) -> None:
        at_the_fence.append(bytes(owner.memory))
        link.sendall(answer)

    with Owner(SMALL, Fault("answer", fall_silent, times=1), Fault("fence", look)) as owner:
        engine = TransferEngine(TransferConfig(same_host="network"))
        remote = engine.open_segment(owner.endpoint, 1)
        local = engine.create_segment(SMALL)
        batch = numbers(local.address), numbers(0), numbers(SMALL)
        local.buffer[:] = b"1" * SMALL
        with pytest.raises(TransferTimeout):
            remote.write(*batch, timeout_s=0.2)
        local.buffer[:] = b"2" * SMALL
        remote.write(*batch)
        remote.write(*batch)
        assert at_the_fence == [b"1" * SMALL], "once, and before the second write"
        assert bytes(owner.memory) == b"2" * SMALL
        engine.close()
