from collections.abc import Iterable, Mapping, Sequence
import enum
from typing import Annotated, Any, Final, overload

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

    kCancelled = 17

    kReadOnly = 18

    kNotNotified = 19

    kTooFewNodes = 20

    kGroupGone = 21

class Error(Exception):
    """What a native call reports: args are (Code, message, is_dirty)."""

class Segment:
    """Memory that peers may reach."""

    @property
    def id(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> int: ...

    @property
    def is_lent(self) -> bool: ...

    @property
    def is_read_only(self) -> bool: ...

    def view(self) -> memoryview:
        """
        All of it, writable unless read-only; the memory lives as long as a view.
        """

class Buffer:
    """Local memory of batches, kept alive until close()."""

    @overload
    def __init__(self, engine: Engine, source: object) -> None: ...

    @overload
    def __init__(self, engine: Engine, address: int, size_bytes: int, owner: object | None, on_device: bool = False, is_read_only: bool = False) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def is_read_only(self) -> bool: ...

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

    @property
    def reason(self) -> str: ...

    @property
    def is_read_only(self) -> bool: ...

class Hold:
    """Keeps an object; dropped after it, it lets go without the GIL."""

    @overload
    def __init__(self, segment: Segment) -> None: ...

    @overload
    def __init__(self, remote: RemoteSegment) -> None: ...

class Transfer:
    """A submitted batch."""

    def done(self) -> bool: ...

    def wait(self, timeout_s: float) -> bool:
        """True: the batch ended well. False: it has not ended yet."""

    def cancel(self) -> None: ...

    def event_fd(self) -> int:
        """A descriptor that is readable once the batch has ended; owned by this."""

class PreparedTransfer:
    """A batch to be carried out many times."""

    @property
    def piece_count(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

class Op(enum.Enum):
    """Which way bytes move."""

    kRead = 0

    kWrite = 1

class PathStatistics:
    """What one path has done so far."""

    @property
    def peer(self) -> str: ...

    @property
    def transport(self) -> str: ...

    @property
    def local(self) -> str: ...

    @property
    def remote(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def read_bytes(self) -> int: ...

    @property
    def written_bytes(self) -> int: ...

    @property
    def slices(self) -> int: ...

    @property
    def resent_slices(self) -> int: ...

    @property
    def failures(self) -> int: ...

    @property
    def quarantines(self) -> int: ...

    @property
    def connections(self) -> int: ...

    @property
    def in_flight_bytes(self) -> int: ...

    @property
    def rate_bytes_per_s(self) -> float: ...

class Engine:
    """native/transfer/engine.h is its contract."""

    @staticmethod
    def create(listen: str, use_shm: bool, io_threads: int, addresses: Sequence[str], serve_threads: int, copy_threads: int, slice_bytes: int, preferred: Mapping[str, Sequence[str]]) -> Engine: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def peer_id(self) -> int: ...

    @property
    def engine_id(self) -> int: ...

    @property
    def host_id(self) -> str: ...

    def create_segment(self, size_bytes: int, name: str) -> Segment: ...

    def lend(self, buffer: Buffer, is_read_only: bool, name: str) -> Segment:
        """The segment keeps the buffer, until close_segment has given True."""

    def close_segment(self, segment: Segment, timeout_s: float) -> bool:
        """True: the memory is free. False: peers can reach it still."""

    @overload
    def open_segment(self, endpoint: str, segment_id: int, timeout_s: float, engine_id: int) -> RemoteSegment: ...

    @overload
    def open_segment(self, endpoint: str, name: str, timeout_s: float, engine_id: int) -> RemoteSegment: ...

    def execute(self, op: Op, remote: RemoteSegment, addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], timeout_s: float, is_background: bool, notify: bytes | None) -> None: ...

    def submit(self, op: Op, remote: RemoteSegment, addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], timeout_s: float, is_background: bool, notify: bytes | None) -> Transfer: ...

    def prepare(self, op: Op, remote: RemoteSegment, addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> PreparedTransfer: ...

    def execute_prepared(self, prepared: PreparedTransfer, timeout_s: float, is_background: bool, notify: bytes | None) -> None: ...

    def submit_prepared(self, prepared: PreparedTransfer, timeout_s: float, is_background: bool, notify: bytes | None) -> Transfer: ...

    def take_notifications(self, limit: int) -> list[tuple[int, bytes]]: ...

    def notification_fd(self) -> int:
        """
        A descriptor that is readable while there are notifications; owned by this.
        """

    def statistics(self) -> list[PathStatistics]: ...

    def fence(self, peer_id: int, timeout_s: float) -> bool: ...

    def rotate(self) -> int: ...

    def close(self) -> None: ...

def crc32c(buffer: object, value: int = 0) -> int: ...

def crc32c_gather(addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], value: int = 0) -> int: ...

class Allocator:
    """Extents of [0, capacity_bytes), 64-byte granularity."""

    def __init__(self, capacity_bytes: int) -> None: ...

    def allocate(self, bytes: int) -> tuple[int, int] | None:
        """Return (offset, block), or None when no free extent is that large."""

    def free(self, block: int) -> int:
        """Return the free block that holds the range now."""

    def replay(self, sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Carry out many: a size above 0 is allocated, and its offset or -1 written; a size of -n frees what operation n - 1 was granted, if it was and is not freed yet.
        """

    def blocks(self) -> list[tuple[int, int, bool, int]]:
        """Return (offset, bytes, is_free, block) by address."""

    @property
    def fragmentation(self) -> float: ...

    def check(self) -> None:
        """End the process if an invariant does not hold."""

    @property
    def used_bytes(self) -> int: ...

    @property
    def capacity_bytes(self) -> int: ...

    @property
    def largest_free_extent(self) -> int: ...

class MasterOptions:
    """What a master is told at its start."""

    def __init__(self, *, epoch: int, client_ttl_s: float, lease_s: float, eviction: str = 'lru', admission: str = 'all', placement: str = 'free-ratio-first', stripe_bytes: int = 67108864, seed: int = 0, repairs: bool = True, hot_gets_per_s: float = 0.0, hot_replicas: int = 2, heat_half_life_s: float = 10.0, step_evictions: int = 2000, admission_window_s: float = 3600.0, admission_keys: int = 1048576, max_sessions: int = 65536) -> None: ...

class MasterCore:
    """The pure master, driven by the bodies of its protocol."""

    def __init__(self, options: MasterOptions) -> None: ...

    def step(self, type: int, body: bytes, *, now_s: float, fresh_id: int = 0) -> bytes:
        """Return the answer's msgpack body, empty where there is none."""

    def tick(self, now_s: float) -> None: ...

    @property
    def has_background(self) -> bool:
        """Something waits for run_slice."""

    def run_slice(self, now_s: float) -> None: ...

    def node_disconnected(self, node: int, now_s: float) -> None: ...

    def check(self) -> None:
        """End the process if an invariant does not hold."""

class MasterServer:
    """The master: one thread over the core."""

    @staticmethod
    def start(listen: str, options: MasterOptions) -> MasterServer: ...

    @property
    def endpoint(self) -> str: ...

    def stop(self) -> None: ...

class MasterClient:
    """Asks a master; for admin tools."""

    def __init__(self, address: str) -> None: ...

    def stats(self, timeout_s: float) -> bytes:
        """Return the msgpack body of a stats answer."""

class StoreNode:
    """Lends memory to the store."""

    @staticmethod
    def start(engine: Engine, *, master: str, capacity_bytes: int, name: str = '', domain: str = '') -> StoreNode: ...

    @property
    def epoch(self) -> int:
        """Of the master that knows this node; 0: none does."""

    @property
    def id(self) -> int: ...

    @property
    def refusal(self) -> str:
        """Why the master does not take it in, as it said last; empty: it does."""

    @property
    def unanswered_s(self) -> float:
        """Since the first heartbeat in a row that failed; 0: its master answers."""

    @property
    def has_given_up(self) -> bool:
        """It was refused for good."""

    def close(self) -> None: ...

class StoreWriter:
    """An object that is being written."""

    def write_part(self, part: int, addresses: object, lengths: object) -> None: ...

    def write(self, offset: int, addresses: object, lengths: object) -> None: ...

    def commit(self) -> bool: ...

    def abort(self) -> None: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def part_count(self) -> int: ...

    @property
    def copy_count(self) -> int: ...

class StoreReader:
    """Objects that are being read, under a lease."""

    @property
    def leading_count(self) -> int: ...

    def sizes(self) -> list[int | None]:
        """Bytes of each object that was looked up; None: it is not there."""

    def read_parts(self, part: int, pieces: list[Any]) -> bool: ...

    def read_ranges(self, pieces: list[Any]) -> list[bool]: ...

    def check_valid(self) -> None: ...

    def close(self) -> None: ...

class StoreView:
    """An object's bytes, read-only, where they are or as a copy."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def is_copy(self) -> bool: ...

    def view(self) -> memoryview: ...

    @property
    def exports(self) -> int:
        """How many memoryviews of it there are."""

class StoreClient:
    """A process's use of the store."""

    def __init__(self, engine: Engine, *, master: str, replicas: int, timeout_s: float, checksums: bool) -> None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def read_counters(self) -> tuple[int, int, int]: ...

    def close(self) -> None: ...

    def put(self, keys: Any, values: list[Any], options: StorePutOptions, links: list[Any] | None) -> tuple[Any, ...]:
        """
        Return (an outcome a key, [(index, code, message) of those that failed], space).
        """

    def put_from(self, keys: Any, addresses: object, lengths: object, counts: object | None, options: StorePutOptions, links: list[Any] | None) -> tuple[Any, ...]:
        """The same from registered memory: `counts` runs a key."""

    def open_write(self, keys: Any, sizes: Sequence[int], part_bytes: int, options: StorePutOptions, links: list[Any] | None) -> tuple[Any, ...]:
        """Return (a StoreWriter or None a key, what `put` returns)."""

    def write_ranges(self, writers: list[Any], offsets: Sequence[int], addresses: object, lengths: object, counts: object | None) -> None: ...

    def commit(self, writers: list[Any]) -> tuple[list[bool], list[tuple[int, Code, str]]]:
        """
        Return (whether each is visible, [(index, code, message) of those that failed]).
        """

    def get(self, keys: Any) -> list[Any]: ...

    def get_range(self, key: bytes | str, offset: int, length: int | None) -> bytes | None: ...

    def get_into(self, key: object, buffer: object) -> int | None: ...

    def get_into_memory(self, keys: Any, addresses: object, capacities: object, counts: object | None) -> list[int | None]: ...

    def open_read(self, keys: Iterable[bytes | str], stop_at_miss: bool) -> StoreReader: ...

    def open_view(self, key: bytes | str) -> StoreView | None: ...

    def exists(self, keys: Any) -> list[bool]: ...

    def match_prefix(self, keys: Any) -> int: ...

    def remove(self, keys: Any) -> list[bool]: ...

    def set_pin(self, keys: Any, pin: int, soft_pin_s: float) -> list[bool]: ...

    def describe(self, keys: Any) -> list[bytes]:
        """Return msgpack bodies, for the keys in order."""

    def list(self, prefix: object, cursor: int, limit: int) -> bytes:
        """Return the msgpack body of one page."""

    def stats(self) -> bytes:
        """Return the msgpack body of a stats answer."""

class StorePutOptions:
    """How objects are to be kept."""

    def __init__(self, *, replicas: int, is_strict: bool, is_upsert: bool, pin: int, soft_pin_s: float, has_checksums: bool, preferred: Sequence[str]) -> None: ...

class NodeView:
    """A node as placement sees it."""

    @staticmethod
    def make(name: str, *, domain: int, host: int = 0, capacity_bytes: int, free_bytes: int, evictable_bytes: int = 0, is_open: bool = True, is_doubted: bool = False) -> NodeView: ...

class Placement:
    """On which nodes an object's bytes go."""

    @staticmethod
    def make(strategy: str, *, seed: int = 0) -> Placement: ...

    @staticmethod
    def strategies() -> list[str]: ...

    @staticmethod
    def count_domains(nodes: Sequence[NodeView]) -> int: ...

    def place(self, nodes: Sequence[NodeView], *, bytes: int, copies: int = 1, host: int = 4294967295, preferred: Sequence[str] = []) -> list[int]:
        """Return the indices of the nodes that get a copy."""

def create_task(client: MasterClient, *, kind: int, key: bytes, source: str, targets: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Return the task's number, or 0 and why there is none."""

def query_tasks(client: MasterClient, *, tasks: Sequence[int], is_cancel: bool, timeout_s: float) -> bytes:
    """
    Return the msgpack body of the answer; no tasks: all that are remembered.
    """

class PathProbe:
    """What native/transfer/probe.h found of one path."""

    @property
    def engine_id(self) -> int: ...

    @property
    def host_id(self) -> str: ...

    @property
    def endpoints(self) -> list[str]: ...

    @property
    def connect_s(self) -> float: ...

    @property
    def latency_s(self) -> float: ...

    @property
    def rate_bytes_per_s(self) -> float: ...

def probe_path(local: str, remote: str, expected_engine_id: int, timeout_s: float) -> PathProbe:
    """Connect over one path and have 1 MiB echoed."""

class PathState(enum.Enum):
    kUp = 0

    kQuarantined = 1

    kProbing = 2

class PathReport:
    """What one path has done, and how it looks now."""

    @property
    def state(self) -> PathState: ...

    @property
    def rate_bytes_per_s(self) -> float:
        """0: not measured yet."""

    @property
    def latency_s(self) -> float: ...

    @property
    def in_flight_bytes(self) -> int: ...

    @property
    def in_flight_slices(self) -> int: ...

    @property
    def completed_bytes(self) -> int: ...

    @property
    def completed_slices(self) -> int: ...

    @property
    def returned_slices(self) -> int: ...

    @property
    def failures(self) -> int: ...

    @property
    def quarantines(self) -> int: ...

class PathSlice:
    """A slice under way; to be completed or returned once."""

    @property
    def path(self) -> int: ...

    @property
    def bytes(self) -> int: ...

class PathScheduler:
    """Chooses the path of each slice; pure."""

    def __init__(self, *, slice_bytes: int = 1048576, stall_s: float = 0.3, far_factor: float = 3.0) -> None: ...

    def begin(self, *, is_background: bool, now: float) -> int:
        """Return the batch's index."""

    def end(self, batch: int) -> None: ...

    def pick(self, batch: int, left_bytes: int, *, near: int = 18446744073709551615, open: int = 18446744073709551615, now: float) -> tuple[int, int] | None:
        """Return (path, bytes at most), or None."""

    def start(self, batch: int, path: int, bytes: int, now: float) -> PathSlice: ...

    def completed(self, slice: PathSlice, now: float) -> None: ...

    def returned(self, slice: PathSlice) -> None: ...

    def must_move(self, slice: PathSlice) -> bool: ...

    def next_event_s(self, batch: int, now: float) -> float: ...

    def add_path(self) -> int:
        """Return the path's index."""

    def progress(self, path: int, now: float) -> None: ...

    def failed(self, path: int, now: float) -> None: ...

    def stalled(self, now: float) -> int:
        """Return a mask of paths."""

    def to_probe(self, now: float) -> int:
        """Return a mask of paths."""

    def probed(self, path: int, is_good: bool, now: float) -> None: ...

    def report(self, path: int) -> PathReport: ...

    def check(self) -> None:
        """End the process if an invariant does not hold."""

    @property
    def up(self) -> int:
        """A mask of paths."""

class EvictionClass(enum.Enum):
    """Victims come from the first that has any."""

    kExtra = 0

    kLeaf = 1

    kInterior = 2

    kSoftPinned = 3

    kHeld = 4

class Eviction:
    """In which order things go, by small ids. See eviction.h."""

    def __init__(self, policy: str) -> None: ...

    def insert(self, id: int, class_: EvictionClass, *, depth: int = 0) -> None: ...

    def touch(self, id: int) -> None: ...

    def set_class(self, id: int, class_: EvictionClass, *, goes_next: bool = False) -> None: ...

    def remove(self, id: int) -> None: ...

    def victim(self, limit: EvictionClass = EvictionClass.kSoftPinned) -> int | None:
        """Return who goes first, or None."""

    def next(self, id: int, limit: EvictionClass = EvictionClass.kSoftPinned) -> int | None:
        """Return who goes after `id`."""

    def class_of(self, id: int) -> EvictionClass: ...

    def count_of(self, class_: EvictionClass) -> int: ...

    def __contains__(self, id: int) -> bool: ...

    def __len__(self) -> int: ...

    def check(self) -> None:
        """End the process if an invariant does not hold."""

def eviction_names() -> list[str]: ...

def replay(keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity_blocks: int, policy: str) -> int:
    """Return how many accesses hit a cache of so many blocks."""

class Admission:
    """Which puts are worth it."""

    def __init__(self, policy: str, *, window_s: float = 3600.0, keys: int = 1048576) -> None: ...

    def admit(self, key_hash: int, bytes: int, *, now_s: float) -> bool: ...

def admission_names() -> list[str]: ...

class MasterLoadTime:
    """What puts cost the core itself."""

    @property
    def put(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def retries(self) -> int:
        """Answers that said to ask again."""

    @property
    def wall_s(self) -> float: ...

    @property
    def cpu_s(self) -> float: ...

class MasterLoad:
    """Puts objects into a master core, and nothing else."""

    def __init__(self, *, room_objects: int, nodes: int = 1, size_bytes: int = 4096, batch: int = 128) -> None: ...

    def put(self, count: int) -> MasterLoadTime:
        """Put so many more objects."""

    @property
    def objects(self) -> int: ...

    @property
    def evictions(self) -> int: ...

    key_bytes: Final[int] = ...
    """(arg: object, /) -> int"""

def memcpy_rate(threads: int, block_bytes: int, span_bytes: int, seconds: float) -> float:
    """
    Bytes a second of memcpy over all threads, each walking round span_bytes of its own.
    """

def socket_rate(endpoint: str, op: Op, streams: int, block_bytes: int, span_bytes: int, seconds: float) -> float:
    """Bytes a second over plain sockets to or from a SocketPeer."""

class SocketPeer:
    """The other end of socket_rate, in another process."""

    @staticmethod
    def create(listen: str) -> SocketPeer: ...

    @property
    def endpoint(self) -> str: ...

    def close(self) -> None: ...

def fill_pattern(buffer: object, seed: int, offset: int = 0) -> None:
    """Write the pattern of `seed` from its byte `offset` on."""

def first_wrong_byte(buffer: object, seed: int, offset: int = 0) -> int:
    """
    The index of the first byte that is not the pattern's; -1: there is none.
    """

def host_id() -> str:
    """Equal iff two processes can share memory."""
