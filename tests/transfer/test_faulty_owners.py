"""An owner that fails at any point of a transfer: what the client says, when, and what it leaves.

Every case carries out one whole transfer without the fault at its end, to the restarted owner.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import (
    MooncakeError,
    PeerUnreachable,
    TransferError,
    TransferTimeout,
    WireError,
)
from mooncake_core.transfer import TransferEngine
from tests.transfer import owner as faults
from tests.transfer import wire
from tests.transfer.owner import Act, Fault, Owner, Point
from tests.transfer.peer import numbers

SIZE = 3 << 20
"""Several requests, and more than the kernel's buffers hold of one."""
LIMIT_S = 0.5
ENDS = (faults.close, faults.reset, faults.end)
OPS = ("read", "write")
GREETING: tuple[Point, ...] = ("hello", "open")
MOVING: tuple[Point, ...] = ("request", "payload", "answer", "second")
# While each connection brings an answer, a batch goes on with the next.
FINAL = [(point, act) for point in (*GREETING, *MOVING[:-1]) for act in ENDS]
FINAL.append(("second", faults.end))


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig(same_host="network"))
    yield engine
    engine.close()


class Local:
    """Registered memory, and batches between it and all of an owner's."""

    def __init__(self, engine: TransferEngine, size_bytes: int = SIZE) -> None:
        self.engine = engine
        self.memory = bytearray(random.Random(1).randbytes(size_bytes))
        self.buffer = engine.register(self.memory)

    def move(self, op: str, endpoint: str, timeout_s: float = 20) -> None:
        remote = self.engine.open_segment(endpoint, 1, timeout_s=timeout_s)
        batch = numbers(self.buffer.address), numbers(0), numbers(len(self.memory))
        (remote.read if op == "read" else remote.write)(*batch, timeout_s=timeout_s)


@contextmanager
def fails(
    kind: type[MooncakeError], *, is_dirty: bool, limits_s: tuple[float, float]
) -> Iterator[None]:
    started_s = time.monotonic()
    with pytest.raises(MooncakeError) as caught:
        yield
    took_s = time.monotonic() - started_s
    assert type(caught.value) is kind, caught.value
    assert caught.value.is_dirty is is_dirty, caught.value
    assert limits_s[0] <= took_s < limits_s[1], f"it took {took_s} s"


AT_ONCE = (0.0, 2.0)
AT_THE_DEADLINE = (LIMIT_S, 1.1 * LIMIT_S + 0.25)  # the machine may be busy


def assert_the_restarted_owner_works(local: Local, op: str, failed: Owner) -> None:
    with Owner(len(local.memory), listen=failed.address) as owner:
        local.move(op, owner.endpoint)
        assert local.memory == owner.memory


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("point", "act"), FINAL, ids=lambda one: getattr(one, "__name__", one))
def test_connections_that_all_end_are_reported_at_once(
    engine: TransferEngine, op: str, act: Act, point: Point
) -> None:
    local = Local(engine)
    owner = Owner(SIZE, Fault(point, act))
    is_dirty = op == "write" and point in MOVING
    with fails(PeerUnreachable, is_dirty=is_dirty, limits_s=AT_ONCE):
        local.move(op, owner.endpoint)
    owner.close()
    assert owner.reached.is_set()
    assert_the_restarted_owner_works(local, op, owner)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("act", [faults.close, faults.reset], ids=lambda act: act.__name__)
@pytest.mark.parametrize("point", MOVING)
def test_a_batch_goes_on_over_another_connection_when_one_ends(
    engine: TransferEngine, op: str, act: Act, point: Point
) -> None:
    local = Local(engine)
    with Owner(SIZE, Fault(point, act, times=1)) as owner:
        local.move(op, owner.endpoint)
        assert owner.reached.is_set()
        assert local.memory == owner.memory
    assert sum(path.failures for path in engine.statistics()) == 1


@pytest.mark.parametrize("op", OPS)
def test_a_batch_outlives_many_connections_that_end_in_a_short_time(
    engine: TransferEngine, op: str
) -> None:
    local = Local(engine)
    with Owner(SIZE, Fault("request", faults.reset, times=16)) as owner:
        local.move(op, owner.endpoint)
        assert local.memory == owner.memory


FENCES = {
    "end": (faults.end, PeerUnreachable, AT_ONCE),
    "close": (faults.close, PeerUnreachable, AT_ONCE),
    "silence": (faults.fall_silent, TransferTimeout, AT_THE_DEADLINE),
    "garbage": (faults.say(faults.header(kind=wire.WRITE_REPLY)), WireError, AT_ONCE),
}


@pytest.mark.parametrize("fence", FENCES.values(), ids=FENCES)
def test_a_write_whose_lost_connection_cannot_be_fenced_fails(
    engine: TransferEngine, fence: tuple[Act, type[MooncakeError], tuple[float, float]]
) -> None:
    act, kind, limits_s = fence
    local = Local(engine)
    owner = Owner(SIZE, Fault("payload", faults.close, 1), Fault("fence", act))
    timeout_s = LIMIT_S if kind is TransferTimeout else 20
    with fails(kind, is_dirty=True, limits_s=limits_s):
        local.move("write", owner.endpoint, timeout_s)
    owner.close()
    assert_the_restarted_owner_works(local, "write", owner)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("point", [*GREETING, *MOVING])
def test_silence_is_a_timeout_at_the_deadline_and_nothing_is_written_after_it(
    engine: TransferEngine, op: str, point: Point
) -> None:
    local = Local(engine)
    owner = Owner(SIZE, Fault(point, faults.fall_silent))
    is_dirty = op == "write" and point in MOVING
    with fails(TransferTimeout, is_dirty=is_dirty, limits_s=AT_THE_DEADLINE):
        local.move(op, owner.endpoint, LIMIT_S)
    left = bytes(local.memory)
    owner.released.set()
    local.move("write", owner.endpoint)  # to the same owner, which has said all it had to say
    assert local.memory == owner.memory == left
    owner.close()
    assert_the_restarted_owner_works(local, op, owner)


@pytest.mark.parametrize("op", OPS)
def test_silence_before_the_connection_is_accepted_is_a_timeout_at_the_deadline(
    engine: TransferEngine, op: str
) -> None:
    with faults.full_backlog() as endpoint:
        local = Local(engine)
        with fails(TransferTimeout, is_dirty=False, limits_s=AT_THE_DEADLINE):
            local.move(op, endpoint, LIMIT_S)


GARBAGE = {
    "noise": lambda answer: random.Random(9).randbytes(len(answer)),
    "http": lambda answer: b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    "magic": faults.header(magic=0x4D44),
    "version": faults.header(version=2),
    "unknown type": faults.header(kind=200),
    "type of a question": faults.header(kind=wire.WRITE),
    "request id": faults.header(request_id=1 << 40),
    "4 GiB": faults.header(length=0xFFFFFFFF),
    "64 MiB": faults.header(length=64 << 20),
    "longer": faults.relative_length(+7),
    "error without a body": faults.error(b""),
    "error of noise": faults.error(random.Random(8).randbytes(100)),
    "error of another shape": faults.error(wire.Number(1).pack()),
    "error of an unknown code": faults.error(wire.Error(99).pack()),
    "no error": faults.error(wire.Error(0).pack()),
    "error only this side can make": faults.error(wire.Error(wire.INVALID_ARGUMENT).pack()),
    "error too long": faults.header(kind=wire.ERROR, length=1 << 20),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("point", ["hello", "open", "answer", "second"])
def test_an_answer_that_is_garbage_is_a_wire_error_at_once(
    engine: TransferEngine, op: str, garbage: str, point: Point
) -> None:
    local = Local(engine)
    owner = Owner(SIZE, Fault(point, faults.say(GARBAGE[garbage])))
    is_dirty = op == "write" and point in MOVING
    with fails(WireError, is_dirty=is_dirty, limits_s=AT_ONCE):
        local.move(op, owner.endpoint)
    owner.close()
    assert_the_restarted_owner_works(local, op, owner)


def test_an_answer_that_is_shorter_than_what_was_asked_for_is_a_wire_error(
    engine: TransferEngine,
) -> None:
    local = Local(engine)
    for point in ("answer", "second"):
        with (
            Owner(SIZE, Fault(point, faults.say(faults.relative_length(-7)))) as owner,
            fails(WireError, is_dirty=False, limits_s=AT_ONCE),
        ):
            local.move("read", owner.endpoint)


@pytest.mark.parametrize("op", OPS)
def test_what_is_said_unasked_is_taken_for_no_answer(engine: TransferEngine, op: str) -> None:
    """The connection is not used again, and the next batch gets its own bytes."""
    local = Local(engine, 1 << 16)

    def add(answer: bytes) -> bytes:
        return answer + answer

    with Owner(1 << 16, Fault("answer", faults.say(add), times=1)) as owner:
        local.move(op, owner.endpoint)
        for at in range(0, 1 << 16, 4):
            struct.pack_into("<I", owner.memory if op == "read" else local.memory, at, at)
        local.move(op, owner.endpoint)
        assert local.memory == owner.memory


@pytest.mark.parametrize("op", OPS)
def test_an_idle_connection_that_the_owner_closed_is_replaced(
    engine: TransferEngine, op: str
) -> None:
    local = Local(engine)
    with Owner(SIZE) as owner:
        local.move(op, owner.endpoint)
        owner.hang_up()
        local.move(op, owner.endpoint)
        assert local.memory == owner.memory


def test_an_owner_that_says_that_the_segment_is_gone_is_believed(engine: TransferEngine) -> None:
    local = Local(engine)
    gone = wire.Error(wire.NOT_FOUND, "no segment 1 here").pack()
    with (
        Owner(SIZE, Fault("answer", faults.say(faults.error(gone)))) as owner,
        pytest.raises(TransferError, match="no segment 1"),
    ):
        local.move("read", owner.endpoint)
