"""An owner that is reached over two addresses, of which one fails, or both."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import PeerUnreachable, TransferTimeout, WireError
from mooncake_core.te_bench.cuts import cut
from mooncake_core.transfer import TransferEngine
from tests.transfer import owner as faults
from tests.transfer.owner import Act, Fault, Owner, Point
from tests.transfer.peer import Peer, numbers
from tests.transfer.test_faulty_owners import (
    AT_ONCE,
    AT_THE_DEADLINE,
    LIMIT_S,
    MOVING,
    OPS,
    Local,
    fails,
)

SIZE = 12 << 20
SECOND = "127.0.0.2"


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig(same_host="network", addresses=(SECOND,)))
    yield engine
    engine.close()


def two_paths(*given: Fault) -> Owner:
    return Owner(SIZE, *given, further_hosts=(SECOND,))


def warm_up(local: Local, owner: Owner, op: str) -> None:
    """Until both paths have carried something."""
    for _ in range(20):
        local.move(op, owner.endpoint)
        used = [one for one in local.engine.statistics() if one.peer == owner.endpoint]
        if len(used) == 2 and all(one.slices > 0 for one in used):
            return
    raise AssertionError(f"one path carries nothing: {used}")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("act", [faults.reset, faults.fall_silent], ids=lambda act: act.__name__)
@pytest.mark.parametrize("point", ["request", "payload", "second"])
def test_a_batch_outlives_one_of_its_paths(
    engine: TransferEngine, op: str, act: Act, point: Point
) -> None:
    """And what the lost connection would have brought is neither read nor written afterwards."""
    local = Local(engine, SIZE)
    fault = Fault(point, act, 0)
    with two_paths(fault) as owner:
        warm_up(local, owner, op)
        local.memory[:] = random.Random(2).randbytes(SIZE)
        fault.times = 1
        local.move(op, owner.endpoint)
        assert owner.reached.is_set()
        assert local.memory == owner.memory
        left = bytes(owner.memory)
        owner.released.set()
        local.move("read", owner.endpoint)
        assert owner.memory == left == local.memory


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("point", ["hello", *MOVING])
def test_an_owner_that_ends_on_all_paths_is_unreachable_at_once(
    engine: TransferEngine, op: str, point: Point
) -> None:
    local = Local(engine, SIZE)
    owner = two_paths(Fault(point, faults.end))
    is_dirty = op == "write" and point in MOVING
    with fails(PeerUnreachable, is_dirty=is_dirty, limits_s=AT_ONCE):
        local.move(op, owner.endpoint)
    owner.close()
    with Owner(SIZE, listen=owner.address, further_hosts=(SECOND,)) as again:
        local.move(op, again.endpoint)
        assert local.memory == again.memory


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("point", MOVING)
def test_silence_on_all_paths_is_a_timeout_at_the_deadline(
    engine: TransferEngine, op: str, point: Point
) -> None:
    local = Local(engine, SIZE)
    with two_paths(Fault(point, faults.fall_silent)) as owner:
        with fails(TransferTimeout, is_dirty=op == "write", limits_s=AT_THE_DEADLINE):
            local.move(op, owner.endpoint, LIMIT_S)
        left = bytes(local.memory)
        owner.released.set()
        local.move("write", owner.endpoint)
        assert local.memory == owner.memory == left


@pytest.mark.parametrize("op", OPS)
def test_garbage_on_one_path_is_a_wire_error_at_once(engine: TransferEngine, op: str) -> None:
    local = Local(engine, SIZE)
    with two_paths(Fault("answer", faults.say(faults.header(magic=0)), 1)) as owner:
        with fails(WireError, is_dirty=op == "write", limits_s=AT_ONCE):
            local.move(op, owner.endpoint)
        local.move(op, owner.endpoint)
        assert local.memory == owner.memory


def test_a_notification_is_heard_once_though_its_connection_ends(engine: TransferEngine) -> None:
    """Whether it was heard already or not, it is said again on another connection."""
    peer = Peer("network", addresses=(SECOND,))
    segment = peer.call("create", 1)
    local = engine.register(bytearray(1))
    remote = engine.open_segment(peer.call("endpoint"), segment)
    batch = numbers(local.address), numbers(0), numbers(1)
    is_over = threading.Event()

    def cut_all() -> None:
        while not is_over.wait(0.002):
            for path in engine.statistics():
                cut(path)

    cutting = threading.Thread(target=cut_all)
    cutting.start()
    said: list[bytes] = []
    heard: list[bytes] = []
    end_s = time.monotonic() + 20
    try:
        while len(said) < 400 or not any(path.failures for path in engine.statistics()):
            assert time.monotonic() < end_s, "no cut fell into a batch"
            said.append(str(len(said)).encode())
            remote.write(*batch, notify=said[-1])
            if len(said) % 100 == 0:
                heard += peer.call("notes")
    finally:
        is_over.set()
        cutting.join()
    assert heard + peer.call("notes") == said
    peer.end()


def test_an_opening_waits_for_a_peer_that_is_stopped_for_some_seconds(
    engine: TransferEngine,
) -> None:
    peer = Peer("network", addresses=(SECOND,))
    segments = [peer.call("create", 1) for _ in range(2)]
    endpoint = peer.call("endpoint")
    engine.open_segment(endpoint, segments[0])
    with ThreadPoolExecutor(1) as pool:
        with peer.stopped():
            opening = pool.submit(engine.open_segment, endpoint, segments[1], timeout_s=20)
            assert not wait([opening], timeout=4.5).done
        assert opening.result(20).id == segments[1]
    peer.end()
