"""Other threads of the interpreter run while the engine works or waits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferTimeout
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers

SIZE = 256 << 20
TICK_S = 0.001


@contextlib.contextmanager
def others_run() -> Iterator[None]:
    """Assert that a thread which wants to run every millisecond does, most of the time."""
    ticks, end = [time.monotonic()], threading.Event()

    def tick() -> None:
        while not end.wait(TICK_S):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    started_s = time.monotonic()
    yield
    took_s = time.monotonic() - started_s
    end.set()
    thread.join()
    # A call that kept the interpreter would leave one tick or two, however long it took.
    assert len(ticks) > took_s / (50 * TICK_S), f"{len(ticks)} ticks in {took_s} s"


def test_nothing_that_takes_long_keeps_the_interpreter(peer: Peer, transport: str) -> None:
    endpoint = peer.call("endpoint")
    remote_id = peer.call("create", SIZE)
    config = TransferConfig(same_host="shm" if transport == "shm" else "network")
    engine = TransferEngine(config)
    with others_run():
        local = engine.create_segment(SIZE)
    memory = bytearray(SIZE)
    with others_run():
        for _ in range(2000):
            engine.register(memory).close()
    with others_run():
        remote = engine.open_segment(endpoint, remote_id)
        for _ in range(3):
            remote.write(numbers(local.address), numbers(0), numbers(SIZE))
            remote.read(numbers(local.address), numbers(0), numbers(SIZE))
    with others_run():
        transfer = remote.submit_read(numbers(local.address), numbers(0), numbers(SIZE))
        assert transfer.wait()
    other_id = peer.call("create", 4096)
    with peer.stopped(), others_run(), pytest.raises(TransferTimeout):
        engine.open_segment(endpoint, other_id, timeout_s=0.3)
    with others_run():
        remote.close()
    with others_run():
        local.close()
        del local
    with others_run():
        engine.close()


def test_engines_start_and_end_without_the_interpreter(transport: str) -> None:
    config = TransferConfig(same_host="shm" if transport == "shm" else "network")
    with others_run():
        for _ in range(100):
            TransferEngine(config).close()


def test_a_fence_that_waits_keeps_nobody_else_from_running(
    engine: TransferEngine, peer: Peer, transport: str
) -> None:
    segment = engine.create_segment(4096)
    peer.call("open", engine.endpoint, segment.id, b"x")
    peer.call("write")
    peer_id = peer.call("peer_id")
    with peer.stopped(), others_run():
        assert engine.fence(peer_id, timeout_s=0.3) is (transport == "tcp")
