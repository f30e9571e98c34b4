"""An owner on this host that fails where its memory is mapped, or gives other memory than it says.

What fails before a segment is open is no failure: it is reached over TCP.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import MooncakeError, PeerUnreachable, TransferTimeout, WireError
from mooncake_core.transfer import RemoteSegment, TransferEngine
from tests.transfer import memory_owner as faults
from tests.transfer import wire
from tests.transfer.memory_owner import Act, MemoryOwner, memory_file
from tests.transfer.peer import numbers
from tests.transfer.wire import Frame

SIZE = 1 << 20
LIMIT_S = 0.5


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig(same_host="shm"))
    yield engine
    engine.close()


class Local:
    def __init__(self, engine: TransferEngine) -> None:
        self.memory = bytearray(os.urandom(SIZE))
        self.buffer = engine.register(self.memory)

    def move(self, op: str, remote: RemoteSegment, timeout_s: float = 20) -> None:
        batch = numbers(self.buffer.address), numbers(0), numbers(SIZE)
        (remote.read if op == "read" else remote.write)(*batch, timeout_s=timeout_s)


def say(kind: int, body: bytes, length: int | None = None) -> Act:
    return faults.say(lambda question: Frame(kind, body, question.request_id).pack(length))


NOISE = b"\x91\xc4\xff"
NO_GREETING = {
    "no frame": faults.say(lambda question: b"\x07" * 50),
    "a frame cut off": say(wire.HELLO_REPLY, b"", 0xFFFFFFFF),
    "an unknown type": say(200, b""),
    "an error without a body": say(wire.ERROR, b""),
    "an error of noise": say(wire.ERROR, NOISE),
}
NO_MEMORY = {
    **NO_GREETING,
    "a question": say(wire.HELLO, NOISE),
    "an empty answer": say(wire.MAP_REPLY, b""),
    "an answer of noise": say(wire.MAP_REPLY, NOISE),
    "a packet that is too long": say(wire.MAP_REPLY, bytes(30_000)),
}


def wrong_memory() -> dict[str, Act]:
    """Descriptors that are not the memory that they are said to be. They live as long as we do."""
    pipe, _ = os.pipe()
    return {
        "none": faults.give(None),
        "another process's": faults.give(None, address=4096),
        "a pipe": faults.give(pipe),
        "a folder": faults.give(os.open("/", os.O_RDONLY)),
        "not sealed": faults.give(memory_file(SIZE, seals=0)),
        "smaller than said": faults.give(memory_file(SIZE // 2)),
        "larger than said": faults.give(memory_file(SIZE * 2)),
        "none at all": faults.give(memory_file(4096), size_bytes=0),
    }


WRONG_MEMORY = wrong_memory()


def assert_it_works_over(transport: str, engine: TransferEngine, owner: MemoryOwner) -> None:
    local = Local(engine)
    remote = engine.open_segment(owner.endpoint, 1)
    assert remote.transport == transport
    local.move("write", remote)
    theirs = owner.memory if transport == "shm" else owner.tcp.memory
    assert theirs[:] == local.memory
    local.memory[:] = bytes(SIZE)
    local.move("read", remote)
    assert theirs[:] == local.memory


@pytest.mark.parametrize("act", [faults.close, *NO_GREETING.values()], ids=["end", *NO_GREETING])
def test_an_owner_whose_unix_socket_is_of_no_use_is_reached_over_tcp(
    engine: TransferEngine, act: Act
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "hello", act) as owner:
        assert_it_works_over("tcp", engine, owner)


@pytest.mark.parametrize("act", [faults.close, *NO_MEMORY.values()], ids=["end", *NO_MEMORY])
def test_memory_that_cannot_be_mapped_is_reached_over_tcp(engine: TransferEngine, act: Act) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map", act) as owner:
        assert_it_works_over("tcp", engine, owner)


@pytest.mark.parametrize("act", WRONG_MEMORY.values(), ids=WRONG_MEMORY)
def test_memory_that_is_not_what_it_is_said_to_be_is_reached_over_tcp(
    engine: TransferEngine, act: Act
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map", act) as owner:
        assert_it_works_over("tcp", engine, owner)


def test_silence_when_memory_is_asked_for_is_a_timeout_at_the_deadline(
    engine: TransferEngine,
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map", faults.fall_silent) as owner:
        started_s = time.monotonic()
        with pytest.raises(TransferTimeout):
            engine.open_segment(owner.endpoint, 1, timeout_s=LIMIT_S)
        assert LIMIT_S <= time.monotonic() - started_s < 1.1 * LIMIT_S + 0.25
        owner.heal()
        assert_it_works_over("shm", engine, owner)


def failed_write(
    engine: TransferEngine, owner: MemoryOwner, timeout_s: float
) -> tuple[MooncakeError, float]:
    """The error of a first write, and when it came."""
    local, remote = Local(engine), engine.open_segment(owner.endpoint, 1)
    assert remote.transport == "shm"
    local.move("read", remote)
    assert local.memory == owner.memory[:]
    before = bytes(owner.memory)
    local.memory[:] = os.urandom(SIZE)
    started_s = time.monotonic()
    with pytest.raises(MooncakeError) as caught:
        local.move("write", remote, timeout_s)
    took_s = time.monotonic() - started_s
    assert owner.memory[:] == before
    assert not caught.value.is_dirty
    owner.heal()
    assert_it_works_over("shm", engine, owner)
    assert owner.memory[:] != before
    return caught.value, took_s


def test_silence_when_memory_is_to_be_written_is_a_timeout_at_the_deadline(
    engine: TransferEngine,
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map writable", faults.fall_silent) as owner:
        error, took_s = failed_write(engine, owner, LIMIT_S)
    assert type(error) is TransferTimeout
    assert LIMIT_S <= took_s < 1.1 * LIMIT_S + 0.25


def test_an_owner_that_goes_when_memory_is_to_be_written_is_unreachable_at_once(
    engine: TransferEngine,
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map writable", faults.close) as owner:
        error, took_s = failed_write(engine, owner, 20)
    assert type(error) is PeerUnreachable
    assert took_s < 2


@pytest.mark.parametrize("act", NO_MEMORY.values(), ids=NO_MEMORY)
def test_garbage_when_memory_is_to_be_written_is_a_wire_error_at_once(
    engine: TransferEngine, act: Act
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map writable", act) as owner:
        error, took_s = failed_write(engine, owner, 20)
    assert type(error) is WireError
    assert took_s < 2


OTHER_MEMORY = {
    **WRONG_MEMORY,
    "smaller than when it was opened": faults.give(memory_file(SIZE // 2), SIZE // 2),
    "larger than when it was opened": faults.give(memory_file(SIZE * 2), SIZE * 2),
}


@pytest.mark.parametrize("act", OTHER_MEMORY.values(), ids=OTHER_MEMORY)
def test_other_memory_than_was_opened_is_never_written(engine: TransferEngine, act: Act) -> None:
    with MemoryOwner(SIZE, engine.host_id, "map writable", act) as owner:
        _, took_s = failed_write(engine, owner, 20)
    assert took_s < 2


def test_an_idle_owner_that_hangs_up_is_unreachable_and_is_opened_again(
    engine: TransferEngine,
) -> None:
    with MemoryOwner(SIZE, engine.host_id, "hello", faults.answer_well) as owner:
        local, remote = Local(engine), engine.open_segment(owner.endpoint, 1)
        local.move("write", remote)
        owner.hang_up()
        for op in ("read", "write"):
            with pytest.raises(PeerUnreachable) as caught:
                local.move(op, remote)
            assert not caught.value.is_dirty
        assert_it_works_over("shm", engine, owner)
