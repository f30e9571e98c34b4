import enum
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


class Code(enum.Enum):
    """Why an operation failed; native/base/status.h says more."""

    kOk = 0

    kInvalidArgument = 1

    kWire = 2

    kTimeout = 3

    kPeerUnreachable = 4

    kBufferNotRegistered = 5

    kChecksumMismatch = 6

    kFenced = 7

    kOutOfSpace = 8

    kLeaseExpired = 9

    kStaleEpoch = 10

    kNotFound = 11

    kAlreadyExists = 12

    kUnavailable = 13

    kSystem = 14

    kClosed = 15

    kWrongPeer = 16

class Error(Exception):
    """What a native call reports: args are (Code, message)."""

class Segment:
    """Memory that peers may reach."""

    @property
    def id(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def address(self) -> int: ...

    def view(self) -> memoryview:
        """All of it, writable; the memory lives as long as a view."""

class Buffer:
    """Local memory of batches, kept alive until close()."""

    @overload
    def __init__(self, engine: Engine, source: object) -> None: ...

    @overload
    def __init__(self, engine: Engine, address: int, size_bytes: int, owner: object | None) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def close(self) -> None:
        """Wait for batches that use it; then let go of it."""

class RemoteSegment:
    """A segment of another engine."""

    @property
    def id(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def transport(self) -> str: ...

class Transfer:
    """A submitted batch."""

    def done(self) -> bool: ...

    def wait(self, timeout_s: float) -> bool:
        """True: the batch ended well. False: it has not ended yet."""

    def event_fd(self) -> int:
        """A descriptor that is readable once the batch has ended; owned by this."""

class Op(enum.Enum):
    """Which way bytes move."""

    kRead = 0

    kWrite = 1

class Engine:
    """native/transfer/engine.h is its contract."""

    @staticmethod
    def create(listen: str, use_shm: bool, io_threads: int) -> Engine: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def peer_id(self) -> int: ...

    @property
    def host_id(self) -> str: ...

    def create_segment(self, size_bytes: int) -> Segment: ...

    def close_segment(self, segment: Segment) -> None: ...

    def open_segment(self, endpoint: str, segment_id: int, timeout_s: float) -> RemoteSegment: ...

    def execute(self, op: Op, remote: RemoteSegment, addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], timeout_s: float) -> None: ...

    def submit(self, op: Op, remote: RemoteSegment, addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], timeout_s: float) -> Transfer: ...

    def fence(self, peer_id: int, timeout_s: float) -> bool: ...

    def rotate(self) -> int: ...

    def close(self) -> None: ...

def crc32c(buffer: object, value: int = 0) -> int: ...

def crc32c_gather(addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], value: int = 0) -> int: ...
