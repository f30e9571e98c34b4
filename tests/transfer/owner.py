"""An owner of memory that follows the protocol up to a chosen point, and then does what it likes.

It serves real sockets from threads, as an engine in another process would. A fault is given what
should be sent next, and the connection to do with as it wants.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import msgpack

from tests.transfer import wire
from tests.transfer.wire import Frame

Point = Literal["hello", "open", "request", "payload", "answer", "second", "fence"]
"""Where a fault strikes: before the hello is answered; before the opening is; before a request is
read; in the middle of its payload, or of its answer's; before its answer; before the answer to the
second request; before the closing of a lane is answered."""
Act = Callable[["Owner", socket.socket, bytes], None]


@dataclass
class Fault:
    """What strikes at a point, the first so many times that a connection comes there."""

    point: Point
    act: Act
    times: int = 1 << 30


class Owner:
    """Listens on loopback until it is closed. It has one segment, `memory`, under every id."""

    def __init__(
        self,
        size_bytes: int,
        *faults: Fault,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        further_hosts: tuple[str, ...] = (),
        host_id: str = "another host",
        unix_name: str = "",
    ) -> None:
        self.memory = bytearray(random.Random(size_bytes).randbytes(size_bytes))
        self.engine_id = random.SystemRandom().randrange(1, 1 << 64)
        self.reached = threading.Event()
        """A fault has struck,"""
        self.reached_s = 0.0
        """and when, by time.perf_counter()."""
        self.released = threading.Event()
        """Those who were silent go on."""
        self._host_id, self._unix_name = host_id, unix_name
        self._faults = faults
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._lanes: dict[int, socket.socket] = {}
        addresses = [listen, *((host, 0) for host in further_hosts)]
        self._listeners = [socket.create_server(one, backlog=64) for one in addresses]
        self.address: tuple[str, int] = self._listeners[0].getsockname()
        self.endpoints = ["{}:{}".format(*one.getsockname()) for one in self._listeners]
        """The first is the one that is given out."""
        self._threads: list[threading.Thread] = []
        for listener in self._listeners:
            self._start(self._accept, listener)

    def _start(self, run: Callable[[socket.socket], None], link: socket.socket) -> None:
        thread = threading.Thread(target=run, args=(link,), daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def endpoint(self) -> str:
        return self.endpoints[0]

    def die(self) -> None:
        """End all connections and listen no more, as the kernel does for a killed process."""
        with self._lock:
            for listener in self._listeners:
                hang_up(listener)
            for link in self._links:
                with contextlib.suppress(OSError):
                    _reset_when_closed(link)
                hang_up(link)

    def hang_up(self) -> None:
        """End all connections, and go on."""
        with self._lock:
            for link in self._links:
                hang_up(link)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.released.set()
        self.die()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "an owner's thread hangs"

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                with self._lock:
                    self._links.add(link)
                self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        count = 0
        with link, contextlib.suppress(OSError, EOFError):
            while True:
                kind, length, request_id = wire.receive_header(link)
                count += kind in (wire.READ, wire.WRITE)
                self._take(link, kind, length, request_id, is_second=count > 1)
        with self._lock:
            self._links.discard(link)

    def _take(
        self, link: socket.socket, kind: int, length: int, request_id: int, *, is_second: bool
    ) -> None:
        points = {wire.HELLO: "hello", wire.OPEN: "open", wire.CLOSE_LANE: "fence"}
        if kind in points:
            body = wire.receive_exactly(link, length)
            answer = self._control(link, kind, body, request_id)
            return self._send(link, answer, points[kind])
        if fault := self._fault("request"):
            fault.act(self, link, b"")
        body = self._payload(link, length) if kind == wire.WRITE else b""
        body = body or wire.receive_exactly(link, length)
        answer = self._carry_out(kind, body, request_id)
        if kind == wire.READ and (fault := self._fault("payload")):
            link.sendall(answer[: len(answer) // 2])
            return fault.act(self, link, answer[len(answer) // 2 :])
        self._send(link, answer, "second" if is_second else "answer")

    def _payload(self, link: socket.socket, length: int) -> bytes:
        fault = self._fault("payload")
        if fault is None:
            return b""
        half = wire.receive_exactly(link, length // 2)
        fault.act(self, link, b"")
        return half + wire.receive_exactly(link, length - len(half))

    def _send(self, link: socket.socket, answer: bytes, point: str) -> None:
        if fault := self._fault(point):
            fault.act(self, link, answer)
        else:
            link.sendall(answer)

    def _fault(self, point: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.point == point and fault.times > 0:
                    fault.times -= 1
                    self.reached_s = self.reached_s or time.perf_counter()
                    self.reached.set()
                    return fault
        return None

    def _control(self, link: socket.socket, kind: int, body: bytes, request_id: int) -> bytes:
        if kind == wire.HELLO:
            self._lanes[msgpack.decode(body, type=wire.Hello).lane_id] = link
            greeting = [self.engine_id, self._host_id, self._unix_name, self.endpoints]
            said = msgpack.encode(greeting)
        elif kind == wire.OPEN:
            said = wire.OpenReply(msgpack.decode(body)[0], len(self.memory)).pack()
        else:
            hang_up(self._lanes[msgpack.decode(body)[0]])
            said = b""
        return Frame(wire.ANSWER_OF[kind], said, request_id).pack()

    def _carry_out(self, kind: int, body: bytes, request_id: int) -> bytes:
        pieces = wire.pieces_of(body)
        if kind == wire.READ:
            read = b"".join(self.memory[at : at + length] for at, length in pieces)
            return Frame(wire.READ_REPLY, read, request_id).pack()
        taken = wire.BATCH.size + len(pieces) * wire.PIECE.size
        for at, length in pieces:
            self.memory[at : at + length] = body[taken : taken + length]
            taken += length
        return Frame(wire.WRITE_REPLY, b"", request_id).pack()


# --- faults ---


@contextlib.contextmanager
def full_backlog() -> Iterator[str]:
    """Yield an endpoint at which the kernel leaves every call unanswered."""
    with socket.socket() as listener, contextlib.ExitStack() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield f"{host}:{port}"


def _reset_when_closed(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(link: socket.socket) -> None:
    """Also under a thread that waits for it."""
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


def close(owner: Owner, link: socket.socket, answer: bytes) -> None:
    """End the connection, and take the next one."""
    raise EOFError


def reset(owner: Owner, link: socket.socket, answer: bytes) -> None:
    """The same, with RST."""
    _reset_when_closed(link)
    raise EOFError


def end(owner: Owner, link: socket.socket, answer: bytes) -> None:
    """End everything, as a killed process does."""
    owner.die()
    raise EOFError


def fall_silent(owner: Owner, link: socket.socket, answer: bytes) -> None:
    """Say nothing until it is released, then go on as if nothing had been."""
    assert owner.released.wait(60)
    link.sendall(answer)


def say(change: Callable[[bytes], bytes]) -> Act:
    """Say something else, and wait what the other side makes of it."""

    def act(owner: Owner, link: socket.socket, answer: bytes) -> None:
        link.sendall(change(answer))
        while link.recv(1 << 16):
            pass
        raise EOFError

    return act


def header(**changes: int) -> Callable[[bytes], bytes]:
    """Change fields of the answer's header: magic, version, kind, length, request_id."""

    def change(answer: bytes) -> bytes:
        names = ("magic", "version", "kind", "length", "request_id")
        fields = dict(zip(names, wire.HEADER.unpack_from(answer), strict=True)) | changes
        return wire.HEADER.pack(*fields.values()) + answer[wire.HEADER.size :]

    return change


def relative_length(by: int) -> Callable[[bytes], bytes]:
    """Say that the body is longer or shorter than it should be, and send as much."""

    def change(answer: bytes) -> bytes:
        kind, length, request_id = wire.HEADER.unpack_from(answer)[2:]
        body = (answer[wire.HEADER.size :] + bytes(max(by, 0)))[: length + by]
        return Frame(kind, body, request_id).pack()

    return change


def error(body: bytes) -> Callable[[bytes], bytes]:
    """An error frame in the answer's place."""
    return lambda answer: Frame(wire.ERROR, body, wire.HEADER.unpack_from(answer)[4]).pack()
