"""An owner whose memory peers on this host map, up to a chosen point; see owner.py."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import threading
from collections.abc import Callable
from typing import Literal

from msgspec import msgpack

from tests.transfer import wire
from tests.transfer.owner import Owner, hang_up
from tests.transfer.wire import Frame

MapPoint = Literal["hello", "map", "map writable"]
Act = Callable[["MemoryOwner", socket.socket, Frame], None]

SHRINK, GROW = 2, 4  # F_SEAL_SHRINK and F_SEAL_GROW


def memory_file(size_bytes: int, seals: int = SHRINK | GROW) -> int:
    file = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(file, 0, size_bytes)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


class MemoryOwner:
    """Serves one segment over TCP, and its memory over a Unix socket, where `act` strikes.

    What goes over TCP is other memory, so that tests can tell.
    """

    def __init__(self, size_bytes: int, host_id: str, point: MapPoint, act: Act) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        name = f"mooncake-test-{os.urandom(16).hex()}"
        self._listener.bind("\0" + name)
        self._listener.listen()
        self.tcp = Owner(size_bytes, host_id=host_id, unix_name=name)
        self.file = memory_file(size_bytes)
        self.memory = mmap.mmap(self.file, size_bytes)
        self.memory[:] = self.tcp.memory
        self.is_released = threading.Event()
        self._fault = point, act
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        return self.tcp.endpoint

    def hang_up(self) -> None:
        """End the Unix connections, and go on."""
        for link in self._links:
            hang_up(link)

    def heal(self) -> None:
        """From now on there is no fault."""
        self._fault = "hello", answer_well
        self.is_released.set()

    def __enter__(self) -> MemoryOwner:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_released.set()
        hang_up(self._listener)
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "an owner's thread hangs"
        self.tcp.close()
        self.memory.close()
        os.close(self.file)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._links.append(link)
                thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            while packet := link.recv(1 << 16):
                kind, _, request_id = wire.HEADER.unpack_from(packet)[2:]
                question = Frame(kind, packet[wire.HEADER.size :], request_id)
                point, act = self._fault
                (act if self._is_at(point, question) else answer_well)(self, link, question)

    def _is_at(self, point: MapPoint, question: Frame) -> bool:
        if point == "hello":
            return question.kind == wire.HELLO
        if question.kind != wire.MAP:
            return False
        return msgpack.decode(question.body, type=wire.Map).is_writable == (point == "map writable")


def answer_well(owner: MemoryOwner, link: socket.socket, question: Frame) -> None:
    if question.kind == wire.HELLO:
        link.sendall(Frame(wire.HELLO_REPLY, b"", question.request_id).pack())
    elif question.kind == wire.MAP:
        give(owner.file)(owner, link, question)


def close(owner: MemoryOwner, link: socket.socket, question: Frame) -> None:
    hang_up(link)


def fall_silent(owner: MemoryOwner, link: socket.socket, question: Frame) -> None:
    assert owner.is_released.wait(60)
    answer_well(owner, link, question)


def say(packet: Callable[[Frame], bytes]) -> Act:
    return lambda owner, link, question: link.sendall(packet(question))


def give(file: int | None, size_bytes: int | None = None, address: int = 0) -> Act:
    """Answer with that descriptor, and say that it is so large."""

    def act(owner: MemoryOwner, link: socket.socket, question: Frame) -> None:
        size = len(owner.memory) if size_bytes is None else size_bytes
        body = wire.MapReply(
            msgpack.decode(question.body, type=wire.Map).segment_id, size, address=address
        )
        packet = Frame(wire.MAP_REPLY, body.pack(), question.request_id).pack()
        socket.send_fds(link, [packet], [] if file is None else [file])

    return act
