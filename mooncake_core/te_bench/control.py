"""What an initiator and a target say to each other beside the bytes that are measured.

One JSON object a line, at most 64 KiB; each request has one answer. The answers do not come through
the engine, so that an engine that moves nothing cannot say that it did.
"""

from __future__ import annotations

import re
import socket
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from mooncake_core.errors import (
    MooncakeError,
    PeerUnreachable,
    TransferTimeout,
    UsageError,
    WireError,
)
from mooncake_core.te_bench.plan import Layout, Positive
from mooncake_core.te_bench.process import Machine, Usage

VERSION = 1
MAX_LINE_BYTES = 64 << 10
SPEAK_S = 10.0
"""How long a connection may take to say who it is."""
ANSWER_S = 120.0
"""Filling or checking memory takes its time."""

Natural = Annotated[int, Meta(ge=0, lt=1 << 62)]
A = TypeVar("A", bound=Struct)


class Hello(Struct, tag=True, frozen=True, kw_only=True):
    """Opens a connection."""

    version: int = VERSION


class Take(Struct, tag=True, frozen=True, kw_only=True):
    """Ask for a segment of this size, in the place of the last one."""

    size_bytes: Positive


class Fill(Struct, tag=True, frozen=True, kw_only=True):
    """Fill a region with the pattern of a seed, from its byte `offset` on."""

    offset: Natural
    size_bytes: Positive
    seed: Natural


class Verify(Struct, tag=True, frozen=True, kw_only=True):
    """Look at every byte of a region: the first `pieces` pieces hold the pattern of `seed`.

    The others still hold its complement.
    """

    offset: Natural
    layout: Layout
    seed: Natural
    pieces: Natural


class AskUsage(Struct, tag=True, frozen=True, kw_only=True):
    """Ask what the process has used."""


Request = Hello | Take | Fill | Verify | AskUsage


class Welcome(Struct, tag=True, frozen=True, kw_only=True):
    """Who the target is."""

    version: int
    pid: int
    machine: Machine
    engine: str
    """Endpoint of its engine."""
    host_id: str
    sockets: str
    """Endpoint of its baseline streams."""


class Taken(Struct, tag=True, frozen=True, kw_only=True):
    """The segment that was asked for."""

    segment_id: int


class Done(Struct, tag=True, frozen=True, kw_only=True):
    """It was done."""


class Verified(Struct, tag=True, frozen=True, kw_only=True):
    """What was found; `wrong` is empty if every byte is right."""

    wrong: str


class Used(Struct, tag=True, frozen=True, kw_only=True):
    """What the process has used."""

    usage: Usage


class Refused(Struct, tag=True, frozen=True, kw_only=True):
    """It could not be done."""

    problem: str


Answer = Welcome | Taken | Done | Verified | Used | Refused


class Control:
    """A connection to a target. One request at a time; not thread-safe.

    Raises:
        UsageError: the address is none.
        PeerUnreachable: nobody listens there, or the connection broke.
        WireError: whoever listens there is no target of this version.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(_split(address), timeout=SPEAK_S)
        except (OSError, UnicodeError) as error:
            raise PeerUnreachable(f"{address}: no target answers: {error}") from error
        self._lines = self._socket.makefile("rb")
        self.welcome = self._first()
        self._socket.settimeout(ANSWER_S)

    def ask(self, request: Request, kind: type[A]) -> A:
        """Return the answer to a request.

        Raises:
            MooncakeError: the target refuses; the message says why.
            PeerUnreachable, TransferTimeout, WireError: there is no proper answer.
        """
        try:
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
            line = self._lines.readline(MAX_LINE_BYTES)
        except TimeoutError as error:
            raise TransferTimeout(f"{self.address}: the target does not answer") from error
        except OSError as error:
            raise PeerUnreachable(f"{self.address}: the target is gone: {error}") from error
        if not line:
            raise PeerUnreachable(f"{self.address}: the target closed the connection")
        return self._read(line, kind)

    def close(self) -> None:
        """Let the target free what it took for this connection. Idempotent."""
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first(self) -> Welcome:
        try:
            return self.ask(Hello(), Welcome)
        except BaseException:
            self.close()
            raise

    def _read(self, line: bytes, kind: type[A]) -> A:
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.DecodeError as error:
            raise WireError(f"{self.address}: no te-bench target: {error}") from error
        if isinstance(answer, Refused):
            raise MooncakeError(f"{self.address}: {answer.problem}")
        if not isinstance(answer, kind):
            raise WireError(f"{self.address}: answered {answer!r} instead of {kind.__name__}")
        return answer


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise UsageError(f"{address!r} is not host:port of a target")
    return host.strip("[]"), int(port)
