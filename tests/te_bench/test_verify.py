"""A fast wrong transfer, and one that was skipped, are found out."""

import socket
from array import array
from collections.abc import Iterator

import pytest

from mooncake_core.config import TransferConfig
from mooncake_core.errors import ChecksumMismatch
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.loopback import LoopbackTarget
from mooncake_core.te_bench.measure import Limits, run_threads
from mooncake_core.te_bench.plan import Case, make_layout
from mooncake_core.te_bench.row import Row, Strand
from mooncake_core.te_bench.session import Session
from mooncake_core.transfer import TransferEngine

SEED = 6


@pytest.fixture(params=["shm", "tcp"])
def session(request: pytest.FixtureRequest, control: Control) -> Iterator[Session]:
    with Session(control, request.param, TransferConfig()) as session:
        yield session


@pytest.fixture(params=["read", "write", "both"])
def row(request: pytest.FixtureRequest, session: Session) -> Iterator[Row]:
    case = Case(transport="auto", direction=request.param, block_bytes=4099, batch=5, threads=2)
    with Row(session.engine, session.control, case, make_layout(case, 1 << 18)) as row:
        yield row


def arm(row: Row, control: Control) -> None:
    for strand in row.strands:
        strand.arm(control, SEED)


def check(row: Row, control: Control, calls: int) -> None:
    for strand in row.strands:
        strand.check(control, SEED, calls)


def spoil(engine: TransferEngine, row: Row, strand: Strand, byte: int) -> None:
    """Change one byte on the side that was to be written."""
    if strand.operation == "read":
        strand.local[byte] ^= 1
        return
    one = engine.create_segment(1)
    where = array("Q", [one.address]), array("Q", [strand.offset + byte]), array("Q", [1])
    row.remote.read(*where)
    one.buffer[0] ^= 1
    row.remote.write(*where)
    one.close()


def take_for_another(engine: TransferEngine, row: Row) -> Strand:
    """Put the bytes of one thread where those of another belong, on the side that was written."""
    last = row.strands[-1]
    first = next(strand for strand in row.strands if strand.operation == last.operation)
    assert first is not last
    if last.operation == "read":
        last.local[:] = first.local
        return last
    size = row.layout.size_bytes
    copy = engine.create_segment(size)
    address, length = array("Q", [copy.address]), array("Q", [size])
    row.remote.read(address, array("Q", [first.offset]), length)
    row.remote.write(address, array("Q", [last.offset]), length)
    copy.close()
    return last


def test_what_was_moved_is_right_in_every_byte(row: Row, control: Control) -> None:
    arm(row, control)
    done = run_threads(row, Limits(rounds=1))
    assert done.calls == [[row.layout.slots] * len(strands) for strands in row.workers]
    check(row, control, row.layout.slots)


def test_a_single_wrong_byte_is_found(row: Row, session: Session) -> None:
    arm(row, session.control)
    run_threads(row, Limits(rounds=1))
    strand = row.strands[-1]
    spoil(session.engine, row, strand, row.layout.size_bytes - 1)
    with pytest.raises(ChecksumMismatch, match=rf"{strand.operation}: byte \d+ of piece \d+ is 0x"):
        check(row, session.control, row.layout.slots)


def test_bytes_of_another_thread_are_not_taken_for_its_own(row: Row, session: Session) -> None:
    arm(row, session.control)
    run_threads(row, Limits(rounds=1))
    strand = take_for_another(session.engine, row)
    with pytest.raises(ChecksumMismatch, match=rf"{strand.operation}: byte 0 of piece 0 is 0x"):
        strand.check(session.control, SEED, row.layout.slots)


def test_a_batch_that_was_skipped_is_found(row: Row, control: Control) -> None:
    arm(row, control)
    for strand in row.strands:
        for call in strand.calls[:-1]:
            call()
    check(row, control, row.layout.slots - 1)
    with pytest.raises(ChecksumMismatch, match=r"byte 0 of piece \d+ was never moved"):
        check(row, control, row.layout.slots)


def test_a_batch_that_nobody_asked_for_is_found(row: Row, control: Control) -> None:
    arm(row, control)
    for strand in row.strands:
        strand.calls[0]()
        strand.calls[-1]()
    with pytest.raises(ChecksumMismatch, match="was moved, and belongs to no batch"):
        check(row, control, 1)


def test_bytes_of_an_earlier_round_do_not_count(row: Row, control: Control) -> None:
    arm(row, control)
    run_threads(row, Limits(rounds=1))
    for strand in row.strands:
        with pytest.raises(ChecksumMismatch):
            strand.check(control, SEED + 2, row.layout.slots)


@pytest.mark.parametrize(
    "request_line",
    [
        b"{",
        b'{"type":"Take","size_bytes":-1}',
        b'{"type":"Take","size_bytes":1180591620717411303424}',
        b'{"type":"Fill","offset":4090,"size_bytes":10,"seed":2}',
        b'{"type":"Fill","offset":0,"size_bytes":10,"seed":-5}',
        b'{"type":"Verify","offset":0,"seed":2,"pieces":-1,'
        b'"layout":{"block_bytes":1,"batch":1,"slots":1}}',
        b'{"type":"Verify","offset":0,"seed":2,"pieces":1,'
        b'"layout":{"block_bytes":1,"batch":1000000000,"slots":1000000000}}',
    ],
)
def test_a_target_refuses_what_makes_no_sense_and_goes_on(
    target: LoopbackTarget, request_line: bytes
) -> None:
    host, _, port = target.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        answers = link.makefile("rb")
        for line, kind in (
            (b'{"type":"Take","size_bytes":4096}', b"Taken"),
            (request_line, b"Refused"),
            (b'{"type":"Fill","offset":0,"size_bytes":4096,"seed":2}', b"Done"),
        ):
            link.sendall(line + b"\n")
            assert kind in answers.readline()
        answers.close()
