"""Clients that fail or lie at any point: the owner keeps its memory, and serves all others."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from msgspec import msgpack

from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import TransferEngine
from tests.transfer import wire
from tests.transfer.peer import Peer, numbers, wait_until
from tests.transfer.wire import Frame

MIB = 1 << 20
SIZE = MIB
HALF = 1 << 18
REST = b"\x11" * SIZE


class World:
    """An owner in another process, and an honest client of it here."""

    def __init__(self, owner: Peer, engine: TransferEngine) -> None:
        self.owner = owner
        self.segment_id: int = owner.call("create", SIZE)
        owner.call("fill", self.segment_id, REST)
        endpoint = owner.call("endpoint")
        host, port = endpoint.rsplit(":", 1)
        self.address = host, int(port)
        self.remote = engine.open_segment(endpoint, self.segment_id)
        self.mine = engine.register(bytearray(b"honest!!"))
        self.serve_others()
        self.descriptors: int = owner.call("descriptors")

    def serve_others(self) -> None:
        """A write, and it is there."""
        self.remote.write(numbers(self.mine.address), numbers(SIZE - 8), numbers(8), timeout_s=10)
        assert self.owner.call("look", self.segment_id, SIZE - 8, 8) == b"honest!!"

    def assert_unharmed(self, written: bytes = b"") -> None:
        """The owner has every byte that it had, but the written ones, and lets go of all else."""
        self.serve_others()
        wait_until(lambda: self.owner.call("descriptors") == self.descriptors)
        expected = written + REST[len(written) : SIZE - 8] + b"honest!!"
        assert self.owner.call("look", self.segment_id, 0, SIZE) == expected

    def call(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def greeted(self) -> socket.socket:
        link = self.call()
        link.sendall(wire.hello(random.getrandbits(64) | 1))
        assert wire.receive_frame(link).kind == wire.HELLO_REPLY
        return link

    def write(self, content: bytes, sent: int | None = None) -> bytes:
        """A Write to offset 0 of which only so much of the payload follows."""
        head = wire.batch(self.segment_id, (0, len(content)))
        frame = Frame(wire.WRITE, head + content).pack()
        return frame if sent is None else frame[: len(frame) - len(content) + sent]


@pytest.fixture(scope="module")
def owner() -> Iterator[Peer]:
    owner = Peer("network")
    yield owner
    owner.end()


@pytest.fixture
def world(owner: Peer) -> Iterator[World]:
    engine = TransferEngine(TransferConfig(same_host="network"))
    yield World(owner, engine)
    engine.close()


def close(link: socket.socket) -> None:
    link.close()


def reset(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


@pytest.mark.parametrize("end", [close, reset])
def test_a_write_that_breaks_off_touches_nothing_but_its_target(
    world: World, end: Callable[[socket.socket], None]
) -> None:
    link = world.greeted()
    link.sendall(world.write(b"\x22" * HALF, sent=HALF // 2))
    wait_until(lambda: world.owner.call("look", world.segment_id, HALF // 2 - 1, 1) == b"\x22")
    end(link)
    world.assert_unharmed(b"\x22" * (HALF // 2))


def test_a_write_that_falls_silent_holds_nobody_up_and_ends_with_its_fence(world: World) -> None:
    with world.greeted() as link:
        link.sendall(world.write(b"\x22" * HALF, sent=HALF // 2))
        for _ in range(20):
            world.serve_others()
        link.sendall(b"\x22" * (HALF // 2))  # and it may still go on
        assert wire.receive_frame(link).kind == wire.WRITE_REPLY
    world.assert_unharmed(b"\x22" * HALF)


def test_who_does_not_take_its_answers_holds_nobody_up(world: World) -> None:
    """Reads of many times what the kernel's buffers hold, of which not one byte is taken."""
    asked = Frame(wire.READ, wire.batch(world.segment_id, (0, SIZE))).pack() * 64
    links = [world.greeted() for _ in range(8)]
    before_kib = world.owner.call("rss_kib")
    for link in links:
        link.sendall(asked)
    for _ in range(20):
        world.serve_others()
    assert world.owner.call("rss_kib") - before_kib < 16 << 10
    for link in links:
        link.close()
    world.assert_unharmed()


def pieces(*given: tuple[int, int], count: int | None = None) -> Callable[[World], bytes]:
    return lambda world: wire.batch(world.segment_id, *given, count=count)


MALFORMED_BATCHES = {
    "nothing": lambda world: b"",
    "half a prefix": lambda world: b"12345678",
    "more pieces than are there": pieces((0, 1), count=2),
    "4 billion pieces": pieces((0, 1), count=0xFFFFFFFF),
    "a piece of 2^63 bytes": pieces((0, 1 << 63)),
    "a sum that wraps around": pieces(*[(0, 1 << 60)] * 16),
}


@pytest.mark.parametrize("kind", [wire.READ, wire.WRITE])
@pytest.mark.parametrize("batch", MALFORMED_BATCHES.values(), ids=MALFORMED_BATCHES)
def test_a_malformed_batch_ends_its_connection(
    world: World, kind: int, batch: Callable[[World], bytes]
) -> None:
    with world.greeted() as link:
        link.sendall(Frame(kind, batch(world)).pack())
        assert is_ended(link)
    world.assert_unharmed()


@pytest.mark.parametrize(("offset", "segment"), [(SIZE, 0), (SIZE - 15, 0), (2**64 - 8, 0), (0, 1)])
def test_a_batch_that_is_refused_leaves_its_connection_in_order(
    world: World, offset: int, segment: int
) -> None:
    """Outside the segment, or into none; the payload of a refused write is skipped."""
    head = wire.batch(world.segment_id ^ segment, (offset, 16))
    with world.greeted() as link:
        for kind, payload in ((wire.WRITE, b"\x22" * 16), (wire.READ, b"")):
            link.sendall(Frame(kind, head + payload, 7).pack())
            answer = wire.receive_frame(link)
            assert (answer.kind, answer.request_id) == (wire.ERROR, 7)
        link.sendall(world.write(b"after"))
        assert wire.receive_frame(link).kind == wire.WRITE_REPLY
    world.assert_unharmed(b"after")


def test_lengths_of_4_gib_are_refused_before_any_memory_is_taken(world: World) -> None:
    before_kib = world.owner.call("rss_kib")
    for kind in range(1, 20):
        for length in (0xFFFFFFFF, 64 << 20):
            with world.call() as stranger, world.greeted() as peer:
                for link in (stranger, peer):
                    link.sendall(Frame(kind).pack(length))
                if length > 64 << 20:
                    assert is_ended(stranger) and is_ended(peer)
    assert world.owner.call("rss_kib") - before_kib < 4 << 10
    world.assert_unharmed()


def is_ended(link: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return link.recv(1) == b""
    return True


def test_thousands_of_random_frames_leave_memory_and_descriptors_flat(world: World) -> None:
    rng = random.Random(3)

    def storm(rounds: int) -> None:
        for _ in range(rounds):
            with world.call() as link, contextlib.suppress(ConnectionError, BrokenPipeError):
                if rng.random() < 0.7:
                    link.sendall(wire.hello(rng.getrandbits(64) | 1))
                for _ in range(rng.randrange(4)):
                    link.sendall(random_frame(rng, world.segment_id))
                if rng.random() < 0.5:
                    reset(link)

    storm(100)
    world.serve_others()
    before_kib = world.owner.call("rss_kib")
    storm(1500)
    world.serve_others()
    wait_until(lambda: world.owner.call("descriptors") == world.descriptors)
    assert world.owner.call("rss_kib") - before_kib < 4 << 10


def random_frame(rng: random.Random, segment_id: int) -> bytes:
    """Noise, a frame around noise, or a frame that is nearly right."""
    noise = rng.randbytes(rng.randrange(200))
    kind = rng.randrange(20)
    piece = (rng.getrandbits(64), rng.getrandbits(64))
    near = rng.choice(
        [
            msgpack.encode([rng.getrandbits(64) for _ in range(rng.randrange(4))]),
            wire.batch(segment_id, *[piece] * rng.randrange(4)),
            wire.batch(rng.getrandbits(64), (0, 100)) + bytes(100),
        ]
    )
    return rng.choice(
        [
            noise,
            Frame(kind, noise).pack(),
            Frame(kind, near).pack(),
            Frame(kind, near).pack(rng.getrandbits(32)),
        ]
    )


def test_who_says_nothing_is_one_of_at_most_so_many(world: World) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with contextlib.ExitStack() as silent:
        silent.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(1300):
            silent.enter_context(world.call())
            if number % 100 == 0:
                world.serve_others()
        wait_until(lambda: world.owner.call("descriptors") <= world.descriptors + 1025)
    world.assert_unharmed()


def test_an_owner_out_of_descriptors_serves_who_is_there_and_others_later(world: World) -> None:
    many = world.owner.call("limit_descriptors", world.descriptors + 30)
    with contextlib.ExitStack() as callers:
        callers.callback(world.owner.call, "limit_descriptors", many)
        for _ in range(60):
            callers.enter_context(world.call())
        world.serve_others()
        world.serve_others()
    world.assert_unharmed()
    world.greeted().close()
