"""An engine in another process, driven by calls over a pipe."""

import array
import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from mooncake_core import errors
from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import MooncakeError, NotNotified
from mooncake_core.transfer import Buffer, RemoteSegment, Segment, TransferEngine

REPLY_S = 20.0


def numbers(*values: int) -> "array.array[int]":
    return array.array("Q", values)


class Driven:
    """What the other process can be told to do."""

    def __init__(self, config: TransferConfig) -> None:
        self.engine = TransferEngine(config)
        self.segments: dict[int, Segment] = {}
        self.remote: RemoteSegment | None = None
        self.local: bytearray = bytearray()
        self.buffer: Buffer | None = None

    def endpoint(self) -> str:
        return self.engine.endpoint

    def peer_id(self) -> int:
        return self.engine.peer_id

    def engine_id(self) -> int:
        return self.engine.engine_id

    def pid(self) -> int:
        return os.getpid()

    def create(self, size_bytes: int) -> int:
        segment = self.engine.create_segment(size_bytes)
        self.segments[segment.id] = segment
        return segment.id

    def lend(self, content: bytes, name: str, read_only: bool) -> int:
        segment = self.engine.lend(bytearray(content), name=name, read_only=read_only)
        self.segments[segment.id] = segment
        return segment.id

    def close_segment(self, segment_id: int) -> None:
        self.segments.pop(segment_id).close()

    def look(self, segment_id: int, offset: int, length: int) -> bytes:
        return bytes(self.segments[segment_id].buffer[offset : offset + length])

    def fill(self, segment_id: int, content: bytes) -> None:
        self.segments[segment_id].buffer[: len(content)] = content

    def open(self, endpoint: str, segment: int | str, local: bytes) -> str:
        self.remote = self.engine.open_segment(endpoint, segment)
        if self.buffer is None:
            self.local = bytearray(local)
            self.buffer = self.engine.register(self.local)
        return self.remote.transport

    def write(self, offset: int = 0) -> None:
        assert self.remote is not None and self.buffer is not None
        self.remote.write(numbers(self.buffer.address), numbers(offset), numbers(len(self.local)))

    def read(self, offset: int = 0) -> bytes:
        assert self.remote is not None and self.buffer is not None
        self.remote.read(numbers(self.buffer.address), numbers(offset), numbers(len(self.local)))
        return bytes(self.local)

    def write_and_notify(self, note: bytes | None) -> None:
        assert self.remote is not None and self.buffer is not None
        batch = numbers(self.buffer.address), numbers(0), numbers(len(self.local))
        self.remote.write(*batch, notify=note)

    def notes(self) -> list[bytes]:
        return [each.data for each in self.engine.notifications()]

    def notify_until_full(self) -> None:
        with contextlib.suppress(NotNotified):
            while True:
                self.write_and_notify(b"x")

    def write_until_refused(self) -> str:
        while True:
            try:
                self.write()
            except MooncakeError as error:
                return type(error).__name__

    def rotate(self) -> int:
        return self.engine.rotate()

    def close(self) -> None:
        self.engine.close()

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    def limit_descriptors(self, count: int) -> int:
        """Return the limit until now."""
        before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        return before

    def rss_kib(self) -> int:
        with open("/proc/self/status") as file:
            return int(next(line.split()[1] for line in file if line.startswith("VmRSS")))


def serve(pipe: Connection, same_host: str, listen: str, addresses: tuple[str, ...]) -> None:
    config = TransferConfig(same_host=same_host, listen=listen, addresses=addresses)  # type: ignore[arg-type]
    driven = Driven(config)
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(driven, name)(*args)))
        except MooncakeError as error:
            pipe.send((False, (type(error).__name__, str(error))))


class Peer:
    """This side of the pipe: `peer.call("create", 4096)`."""

    def __init__(
        self, same_host: str, listen: str = "127.0.0.1:0", addresses: tuple[str, ...] = ()
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=serve, args=(other, same_host, listen, addresses), daemon=True
        )
        self.process.start()
        other.close()

    def send(self, name: str, *args: Any) -> None:
        self.pipe.send((name, args))

    def receive(self) -> Any:
        assert self.pipe.poll(REPLY_S), "the peer does not answer"
        is_ok, value = self.pipe.recv()
        if not is_ok:
            raise getattr(errors, value[0])(value[1])
        return value

    def call(self, name: str, *args: Any) -> Any:
        self.send(name, *args)
        return self.receive()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(REPLY_S)

    def end(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join(REPLY_S)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_until(lambda: self._state() == "T")
        try:
            yield
        finally:
            if self.process.is_alive():
                os.kill(self.process.pid, signal.SIGCONT)

    def _state(self) -> str:
        with open(f"/proc/{self.process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]


def wait_until(condition: Any, limit_s: float = REPLY_S) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.002)
