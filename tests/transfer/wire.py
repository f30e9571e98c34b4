"""What engines say to each other: an independent reading of native/transfer/protocol.h."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from msgspec import Struct, msgpack

MAGIC, VERSION = 0x4D43, 1
HEADER = struct.Struct("<HBBIQ")
BATCH = struct.Struct("<QII")
PIECE = struct.Struct("<QQ")

HELLO, HELLO_REPLY, OPEN, OPEN_REPLY, READ, READ_REPLY, WRITE, WRITE_REPLY, ERROR = range(1, 10)
MAP, MAP_REPLY, RELEASE, BYE, FENCED, SEGMENT_GONE, CLOSE_LANE, LANE_CLOSED = range(10, 18)
ANSWER_OF = {HELLO: HELLO_REPLY, OPEN: OPEN_REPLY, READ: READ_REPLY, WRITE: WRITE_REPLY}
ANSWER_OF |= {CLOSE_LANE: LANE_CLOSED, MAP: MAP_REPLY}

INVALID_ARGUMENT, NOT_FOUND, WRONG_PEER = 1, 11, 16


class Body(Struct, array_like=True, frozen=True):
    """A msgpack array."""

    def pack(self) -> bytes:
        return msgpack.encode(self)


class Hello(Body, frozen=True):
    peer_id: int
    expected_engine_id: int = 0
    lane_id: int = 1


class Number(Body, frozen=True):
    number: int


class Error(Body, frozen=True):
    code: int
    message: str = "no"


class Map(Body, frozen=True):
    handle: int
    segment_id: int
    is_writable: bool


class OpenReply(Body, frozen=True):
    segment_id: int
    size_bytes: int
    is_read_only: bool = False


class MapReply(Body, frozen=True):
    segment_id: int
    size_bytes: int
    is_read_only: bool = False
    address: int = 0
    start_time: int = 0


class Frame(NamedTuple):
    """One message."""

    kind: int
    body: bytes = b""
    request_id: int = 1

    def pack(self, length: int | None = None) -> bytes:
        """`length` is what the header says; the body's by default."""
        size = len(self.body) if length is None else length
        return HEADER.pack(MAGIC, VERSION, self.kind, size, self.request_id) + self.body


def hello(peer_id: int, expected: int = 0) -> bytes:
    return Frame(HELLO, Hello(peer_id, expected).pack()).pack()


def batch(segment_id: int, *pieces: tuple[int, int], count: int | None = None) -> bytes:
    """The body of a Read, and the beginning of that of a Write."""
    head = BATCH.pack(segment_id, len(pieces) if count is None else count, 0)
    return head + b"".join(PIECE.pack(*piece) for piece in pieces)


def pieces_of(body: bytes) -> list[tuple[int, int]]:
    """Offset and length of each piece of a Read or Write."""
    _, count, _ = BATCH.unpack_from(body)
    at = BATCH.size
    return [PIECE.unpack_from(body, at + index * PIECE.size) for index in range(count)]


def receive_exactly(link: socket.socket, count: int) -> bytes:
    """Raises EOFError where the other side ends before."""
    data = bytearray()
    while len(data) < count:
        more = link.recv(min(count - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def receive_header(link: socket.socket) -> tuple[int, int, int]:
    """Kind, body length and request id."""
    _, _, kind, length, request_id = HEADER.unpack(receive_exactly(link, HEADER.size))
    return kind, length, request_id


def receive_frame(link: socket.socket) -> Frame:
    kind, length, request_id = receive_header(link)
    return Frame(kind, receive_exactly(link, length), request_id)
