"""Peers that die, stop, come back or talk nonsense."""

import contextlib
import gc
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import (
    BufferNotRegistered,
    ConfigError,
    OutOfSpace,
    PeerUnreachable,
    TransferError,
    TransferTimeout,
    WireError,
)
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer, numbers, wait_until

MIB = 1 << 20


def test_a_peer_killed_in_the_middle_of_a_batch_is_reported_at_once(
    engine: TransferEngine, peer: Peer
) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 64 * MIB))
    local = engine.create_segment(64 * MIB)
    started = threading.Event()
    errors: list[BaseException] = []

    def write_until_it_fails() -> None:
        try:
            while True:
                remote.write(numbers(local.address), numbers(0), numbers(64 * MIB), timeout_s=60)
                started.set()
        except TransferError as error:
            errors.append(error)

    thread = threading.Thread(target=write_until_it_fails)
    thread.start()
    assert started.wait(20)
    killed_s = time.monotonic()
    peer.kill()
    thread.join(20)
    assert [type(error) for error in errors] == [PeerUnreachable]
    assert time.monotonic() - killed_s < 5


def test_a_stopped_peer_is_a_timeout_at_the_deadline(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 64 * MIB))
    local = engine.create_segment(64 * MIB)
    with peer.stopped():
        started_s = time.monotonic()
        with pytest.raises(TransferTimeout):
            remote.write(numbers(local.address), numbers(0), numbers(64 * MIB), timeout_s=0.3)
        assert 0.3 <= time.monotonic() - started_s < 2.0
    remote.write(numbers(local.address), numbers(0), numbers(64 * MIB))


def test_nobody_listening_is_reported_at_once(engine: TransferEngine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(PeerUnreachable, match=endpoint):
        engine.open_segment(endpoint, 1, timeout_s=30)


def test_who_speaks_another_protocol_is_a_wire_error(engine: TransferEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError, match="HTTP speaks there"):
            engine.open_segment(f"127.0.0.1:{server.getsockname()[1]}", 1, timeout_s=10)
        thread.join()


def test_a_restarted_owner_is_opened_anew(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    first = start_peer()
    endpoint = first.call("endpoint")
    old = engine.open_segment(endpoint, first.call("create", 4096))
    first.kill()
    second = start_peer(listen=endpoint)
    segment_id = second.call("create", 4096)
    with engine.register(bytearray(b"again")) as buffer:
        batch = numbers(buffer.address), numbers(0), numbers(5)
        new = engine.open_segment(endpoint, segment_id)
        new.write(*batch)
        assert second.call("look", segment_id, 0, 5) == b"again"
        with pytest.raises(PeerUnreachable):
            old.write(*batch)


def test_owners_forget_peers_that_died(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    owner = start_peer()
    segment_id = owner.call("create", MIB)
    endpoint, baseline = owner.call("endpoint"), owner.call("descriptors")
    for _ in range(3):
        writer = start_peer()
        writer.call("open", endpoint, segment_id, b"x" * 100)
        writer.call("write")
        assert owner.call("descriptors") > baseline
        writer.kill()
        wait_until(lambda: owner.call("descriptors") == baseline)


def test_random_bytes_on_the_port_hurt_nobody_else(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", MIB)
    endpoint = peer.call("endpoint")
    remote = engine.open_segment(endpoint, segment_id)
    host, port = endpoint.rsplit(":", 1)
    content = random.Random(5).randbytes(MIB)
    source = engine.register(content)
    baseline = peer.call("descriptors")
    for garbage in hostile_messages(segment_id):
        insult((host, int(port)), garbage)
        remote.write(numbers(source.address), numbers(0), numbers(1000))
    remote.write(numbers(source.address), numbers(0), numbers(MIB))
    assert peer.call("look", segment_id, 0, MIB) == content
    wait_until(lambda: peer.call("descriptors") == baseline)


def insult(address: tuple[str, int], garbage: bytes) -> None:
    """Send it, and wait until the other side has closed, in one way or another."""
    with socket.create_connection(address) as connection, contextlib.suppress(OSError):
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def frame(kind: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return struct.pack("<HBBIQ", 0x4D43, 1, kind, size, 1) + body


def hostile_messages(segment_id: int) -> list[bytes]:
    rng = random.Random(6)
    hello = frame(1, b"\x92\xcf" + rng.randbytes(8) + b"\x00")
    piece = struct.pack("<QQ", 0, 1)
    far = struct.pack("<QQ", 2**64 - 8, 16)
    long = struct.pack("<QQ", 0, 2**63)
    batch = struct.pack("<QII", segment_id, 1, 0)
    return [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        *(rng.randbytes(rng.randrange(1, 400)) for _ in range(40)),
        frame(1, b"", length=0xFFFFFFFF),
        frame(1, b"", length=64 << 20),
        frame(7, batch + piece + b"x"),  # before any hello
        hello + frame(5, struct.pack("<QII", segment_id, 0xFFFFFFFF, 0)),
        hello + frame(5, batch + long),
        hello + frame(5, batch + far),
        hello + frame(7, batch + far + b"x" * 16),
        hello + frame(7, batch + piece, length=64 << 20),
        hello + frame(7, batch + piece),  # one byte short
        hello + frame(200, b"what"),
        hello + hello,
        *(hello + frame(rng.randrange(256), rng.randbytes(64)) for _ in range(40)),
    ]


def test_a_registered_object_is_kept_alive(engine: TransferEngine, peer: Peer) -> None:
    segment_id = peer.call("create", MIB)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    content = random.Random(7).randbytes(MIB)
    buffer = engine.register(bytearray(content))
    gc.collect()
    churn = [bytearray(MIB) for _ in range(8)]
    remote.write(numbers(buffer.address), numbers(0), numbers(MIB))
    assert peer.call("look", segment_id, 0, MIB) == content
    del churn


def test_a_registered_bytearray_cannot_move(engine: TransferEngine) -> None:
    memory = bytearray(100)
    buffer = engine.register(memory)
    with pytest.raises(BufferError):
        memory.extend(bytes(10_000))
    buffer.close()
    memory.extend(bytes(10_000))


def test_read_only_memory_is_never_read_into(engine: TransferEngine, peer: Peer) -> None:
    remote = engine.open_segment(peer.call("endpoint"), peer.call("create", 4096))
    constant = b"never changes"
    with engine.register(constant) as buffer:
        batch = numbers(buffer.address), numbers(0), numbers(len(constant))
        remote.write(*batch)
        with pytest.raises(TransferError, match="source"):
            remote.read(*batch)


def test_everything_survives_being_closed_in_any_order(transport: str) -> None:
    config = TransferConfig(same_host="shm" if transport == "shm" else "network")
    for seed in range(12):
        owner, user = TransferEngine(config), TransferEngine(config)
        segment = owner.create_segment(4096)
        remote = user.open_segment(owner.endpoint, segment.id)
        buffer = user.register(bytearray(16))
        view = segment.buffer
        remote.submit_write(numbers(buffer.address), numbers(0), numbers(16))
        things = [owner, user, segment, remote, buffer, owner, buffer]
        random.Random(seed).shuffle(things)
        for thing in things:
            thing.close()
        view[0] = 1
        with pytest.raises((TransferError, ValueError)):
            remote.read(numbers(), numbers(), numbers())


EXIT_WHILE_BUSY = """
import array, sys, threading
from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import TransferEngine

config = TransferConfig(same_host=sys.argv[1])
owner, user = TransferEngine(config), TransferEngine(config)
segment = owner.create_segment(64 << 20)
local = user.create_segment(64 << 20)
remote = user.open_segment(owner.endpoint, segment.id)
batch = [array.array("Q", [number]) for number in (local.address, 0, 64 << 20)]
transfers = [remote.submit_write(*batch) for _ in range(20)]

def write_for_ever():
    while True:
        remote.write(*batch)

thread = threading.Thread(target=write_for_ever, daemon=True)
thread.start()
transfers[0].wait()
"""


def test_an_interpreter_exits_while_batches_are_under_way(transport: str) -> None:
    same_host = "shm" if transport == "shm" else "network"
    command = [sys.executable, "-W", "error", "-c", EXIT_WHILE_BUSY, same_host]
    subprocess.run(command, check=True, timeout=20)


EXIT_IN_A_CHILD = """
import os
from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import TransferEngine

engine = TransferEngine(TransferConfig())
segment = engine.create_segment(4096)
remote = engine.open_segment(engine.endpoint, segment.id)
child = os.fork()
if child == 0:
    engine.close()
    del engine, segment, remote
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
engine.open_segment(engine.endpoint, segment.id)
engine.close()
"""


USE_IN_A_CHILD = """
import os
from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferError
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import numbers

engine = TransferEngine(TransferConfig(same_host=%r))
segment = engine.create_segment(4096)
remote = engine.open_segment(engine.endpoint, segment.id)
buffer = engine.register(bytearray(b"parent"))
batch = numbers(buffer.address), numbers(0), numbers(6)
remote.write(*batch)
prepared = remote.prepare_read(*batch)
child = os.fork()
if child == 0:
    uses = (
        lambda: remote.write(*batch),
        lambda: remote.submit_read(*batch),
        prepared.run,
        prepared.submit,
        engine.rotate,
        lambda: engine.fence(1, timeout_s=1),
        lambda: engine.create_segment(1),
        lambda: engine.open_segment(engine.endpoint, segment.id),
    )
    for use in uses:
        try:
            use()
            os._exit(1)
        except TransferError as error:
            assert f"belongs to process {os.getppid()}" in str(error), error
    os._exit(0 if TransferEngine(TransferConfig()).endpoint else 2)
assert os.waitpid(child, 0)[1] == 0
remote.read(*batch)
engine.close()
"""


@pytest.mark.parametrize("same_host", ["shm", "network"])
def test_a_forked_child_is_refused_its_parents_engine_and_may_make_one(same_host: str) -> None:
    subprocess.run([sys.executable, "-c", USE_IN_A_CHILD % same_host], check=True, timeout=20)


DESCRIPTORS_RUN_OUT = """
import os, resource
from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import TransferError
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import numbers

config = TransferConfig(same_host="network")
engine, owner = TransferEngine(config), TransferEngine(config)
segment = owner.create_segment(6)
before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
try:
    engine.open_segment(owner.endpoint, segment.id)
except TransferError as error:
    assert type(error) is TransferError, repr(error)
    assert "Too many open files" in str(error), error
resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
assert engine.open_segment(owner.endpoint, segment.id).size_bytes == 6
engine.close()
owner.close()
"""


def test_a_peer_is_not_blamed_when_this_process_is_out_of_descriptors() -> None:
    subprocess.run([sys.executable, "-c", DESCRIPTORS_RUN_OUT], check=True, timeout=20)


def test_a_forked_child_ends_without_waiting_for_its_parents_threads() -> None:
    subprocess.run([sys.executable, "-c", EXIT_IN_A_CHILD], check=True, timeout=20)


def test_a_buffer_may_be_registered_ten_thousand_times(engine: TransferEngine) -> None:
    memory = bytearray(100)
    buffers = [engine.register(memory) for _ in range(10_000)]
    for buffer in buffers:
        buffer.close()
    with pytest.raises(BufferNotRegistered):
        engine.open_segment(engine.endpoint, engine.create_segment(100).id).write(
            numbers(buffers[0].address), numbers(0), numbers(100)
        )


def test_an_ipv6_address_is_reached_as_it_is_told() -> None:
    config = TransferConfig(listen="[::1]:0", same_host="network")
    owner, user = TransferEngine(config), TransferEngine(config)
    assert owner.endpoint.startswith("[::1]:")
    assert user.open_segment(owner.endpoint, owner.create_segment(100).id).size_bytes == 100
    user.close()
    owner.close()


def test_more_memory_than_there_is_is_refused_by_name(engine: TransferEngine) -> None:
    with pytest.raises(OutOfSpace, match="are left, by"):
        engine.create_segment(1 << 60)
    with pytest.raises(ValueError, match="at least 1"):
        engine.create_segment(0)


def test_an_address_in_use_is_a_configuration_error(engine: TransferEngine) -> None:
    with pytest.raises(ConfigError, match=f"listen on {engine.endpoint}"):
        TransferEngine(TransferConfig(listen=engine.endpoint))
