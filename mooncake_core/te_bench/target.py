"""The target: owns the memory that is read and written, and says what arrived in it."""

from __future__ import annotations

import os
import socket
import socketserver
import threading

import msgspec

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError, MooncakeError, TransferError
from mooncake_core.listening import address_of, cannot_listen
from mooncake_core.native import _native, native_errors
from mooncake_core.te_bench.control import (
    MAX_LINE_BYTES,
    SPEAK_S,
    VERSION,
    Answer,
    AskUsage,
    Done,
    Fill,
    Hello,
    Refused,
    Request,
    Take,
    Taken,
    Used,
    Verified,
    Verify,
    Welcome,
)
from mooncake_core.te_bench.process import read_machine, read_usage
from mooncake_core.te_bench.verify import fill_scattered, wrong_scattered
from mooncake_core.transfer import Segment, TransferEngine


class Target:
    """Serves initiators until close(): each connection has a segment of its own.

    Args:
        listen: host:port for initiators; port 0 takes a free one.
        config: of its engine; what the engine and the baseline streams listen on is derived from
            it, so that initiators reach them over the same interface.

    Raises:
        ConfigError: an address cannot be used.
    """

    def __init__(self, listen: str, config: TransferConfig) -> None:
        self._server = _listen(listen)
        try:
            self.engine = TransferEngine(config)
        except BaseException:
            self._server.server_close()
            raise
        host = config.listen.rpartition(":")[0]
        with native_errors:  # the engine is there, so its host can be listened on
            self.streams = _native.SocketPeer.create(f"{host}:0")
        self.machine = read_machine()
        self._server.target = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port for initiators."""
        return address_of(self._server.socket)

    def close(self) -> None:
        """End every connection and free what was taken for it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.streams.close()
        self.engine.close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    target: Target


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Session(socketserver.StreamRequestHandler):
    """One initiator's connection."""

    server: _Server
    segment: Segment | None = None

    def handle(self) -> None:
        self.connection.settimeout(SPEAK_S)
        try:
            while line := self.rfile.readline(MAX_LINE_BYTES):
                self.wfile.write(msgspec.json.encode(self._answer(line)) + b"\n")
                self.connection.settimeout(None)
        except OSError:  # it went away, or said nothing
            return

    def finish(self) -> None:
        self._drop()
        super().finish()

    def _answer(self, line: bytes) -> Answer:
        try:
            return self._carry_out(msgspec.json.decode(line, type=Request))
        except (msgspec.DecodeError, MooncakeError, ValueError) as error:
            return Refused(problem=str(error))

    def _carry_out(self, request: Request) -> Answer:
        match request:
            case Hello():
                return self._welcome(request)
            case Take():
                self._drop()
                self.segment = self.server.target.engine.create_segment(request.size_bytes)
                return Taken(segment_id=self.segment.id)
            case Fill():
                fill_scattered(self._region(request.offset, request.size_bytes), request)
                return Done()
            case Verify():
                region = self._region(request.offset, request.layout.size_bytes)
                return Verified(wrong=wrong_scattered(region, request))
            case AskUsage():
                return Used(usage=read_usage())

    def _welcome(self, hello: Hello) -> Answer:
        if hello.version != VERSION:
            return Refused(problem=f"speaks version {VERSION} of te-bench, not {hello.version}")
        target = self.server.target
        return Welcome(
            version=VERSION,
            pid=os.getpid(),
            machine=target.machine,
            engine=target.engine.endpoint,
            host_id=target.engine.host_id,
            sockets=target.streams.endpoint,
        )

    def _region(self, offset: int, size_bytes: int) -> memoryview:
        segment = self.segment
        if segment is None:
            raise TransferError("no segment was taken on this connection")
        if offset + size_bytes > segment.size_bytes:
            raise ValueError(
                f"[{offset}, {offset + size_bytes}) is outside the segment of "
                f"{segment.size_bytes} bytes"
            )
        return segment.buffer[offset : offset + size_bytes]

    def _drop(self) -> None:
        if self.segment is not None:
            self.segment.close()
            self.segment = None


def _listen(address: str) -> _Server:
    host, _, port = address.rpartition(":")
    kind = _Server6 if ":" in host else _Server
    try:
        return kind((host.strip("[]"), int(port)), _Session)
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError(f"--listen: {cannot_listen(address, error)}") from error
