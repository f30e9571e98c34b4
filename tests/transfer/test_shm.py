"""What only the same-host transport does: whom it serves, what it counts, what it leaves."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferError, TransferTimeout
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import numbers

MIB = 1 << 20
NOBODY = 65534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig())
    yield engine
    engine.close()


@pytest.fixture
def other() -> Iterator[TransferEngine]:
    other = TransferEngine(TransferConfig())
    yield other
    other.close()


def run(script: str, *args: object) -> str:
    command = [sys.executable, "-W", "error", "-c", AS_NOBODY + script, *map(str, args)]
    return subprocess.run(
        command, check=True, timeout=30, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


# The interpreter may lie where only root can read, so the user changes once all is loaded. Such a
# process is closed to its own user until it says otherwise.
AS_NOBODY = f"""
import array, ctypes, os, sys
from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import TransferEngine

def set_dumpable(is_dumpable):
    assert ctypes.CDLL(None).prctl(4, is_dumpable) == 0  # PR_SET_DUMPABLE

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    set_dumpable(1)

def move(operation, buffer, size):
    operation(*(array.array("Q", [number]) for number in (buffer.address, 0, size)))
"""


WRITE_AS_ANOTHER_USER = """
engine = TransferEngine(TransferConfig())
remote = engine.open_segment(sys.argv[1], int(sys.argv[2]))
move(remote.write, engine.register(bytearray(b"nobody")), 6)
print(remote.transport, remote.reason, sep=": ")
engine.close()
"""


@is_root
@pytest.mark.parametrize("is_lent", [True, False])
def test_a_process_of_another_user_comes_over_the_network(
    engine: TransferEngine, is_lent: bool
) -> None:
    segment = engine.lend(bytearray(100)) if is_lent else engine.create_segment(100)
    said = run(WRITE_AS_ANOTHER_USER, engine.endpoint, segment.id)
    assert said == "tcp: the peer's process is another user's"
    assert bytes(segment.buffer[:6]) == b"nobody"


OPEN_WHAT_THE_KERNEL_PROTECTS = """
import signal
pipe, other = os.pipe()
child = os.fork()
if child == 0:
    set_dumpable(0)
    engine = TransferEngine(TransferConfig())
    engine.lend(bytearray(b"hidden"), name="hidden")
    os.write(other, engine.endpoint.encode())
    signal.pause()
engine = TransferEngine(TransferConfig())
remote = engine.open_segment(os.read(pipe, 100).decode(), "hidden")
local = bytearray(6)
move(remote.read, engine.register(local), 6)
print(remote.transport, local.decode(), remote.reason)
os.kill(child, 9)
"""


def test_memory_that_the_kernel_protects_is_reached_over_the_network() -> None:
    said = run(OPEN_WHAT_THE_KERNEL_PROTECTS)
    assert said.startswith("tcp hidden the kernel gives no access to the memory of process ")
    assert said.endswith("Operation not permitted")


def test_statistics_count_what_was_copied(engine: TransferEngine, other: TransferEngine) -> None:
    remote = engine.open_segment(other.endpoint, other.lend(bytearray(3 * MIB)).id)
    local = engine.create_segment(3 * MIB)
    remote.write(numbers(local.address), numbers(0), numbers(3 * MIB))
    remote.read(numbers(local.address), numbers(0), numbers(MIB))
    (path,) = (path for path in engine.statistics() if path.transport == "shm")
    assert (path.state, path.connections, path.failures) == ("up", 1, 0)
    assert (path.written_bytes, path.read_bytes) == (3 * MIB, MIB)
    assert path.slices >= 4  # of at most 1 MiB; what threads share is cut smaller
    assert path.in_flight_bytes == 0 and path.rate_bytes_per_s > 0
    other.close()
    with pytest.raises(TransferError, match="owner"):
        remote.read(numbers(local.address), numbers(0), numbers(MIB))
    (path,) = (path for path in engine.statistics() if path.transport == "shm")
    assert (path.state, path.connections, path.failures) == ("gone", 0, 1)


@pytest.mark.parametrize("is_lent", [True, False])
def test_a_batch_that_is_late_from_the_start_writes_nothing(
    engine: TransferEngine, other: TransferEngine, is_lent: bool
) -> None:
    segment = other.lend(bytearray(6)) if is_lent else other.create_segment(6)
    remote = engine.open_segment(other.endpoint, segment.id)
    local = engine.create_segment(6)
    batch = numbers(local.address), numbers(0), numbers(6)
    local.buffer[:] = b"before"
    remote.write(*batch)
    local.buffer[:] = b"after!"
    with pytest.raises(TransferTimeout) as late:
        remote.write(*batch, timeout_s=0)
    assert not late.value.is_dirty
    assert bytes(segment.buffer) == b"before"


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_rounds_of_lending_leave_nothing_behind(
    engine: TransferEngine, other: TransferEngine
) -> None:
    lent, local = bytearray(5000), bytearray(b"x" * 5000)

    def lend_and_use(rounds: int) -> None:
        for round_number in range(rounds):
            with engine.register(local) as buffer:
                segment = other.lend(lent, name="again")
                if round_number % 4 == 0:
                    remote = engine.open_segment(other.endpoint, segment.id)
                    remote.write(numbers(buffer.address), numbers(0), numbers(5000))
                assert segment.close(timeout_s=10)

    lend_and_use(2000)  # until every pool and cache has its size
    before = resident_bytes(), descriptors()
    lend_and_use(10_000)
    after = resident_bytes(), descriptors()
    assert after[1] <= before[1]
    assert after[0] - before[0] < 2 * MIB
    assert lent == local
