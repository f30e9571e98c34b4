"""The store's messages as msgspec structs: an independent reading of the wire format."""

from __future__ import annotations

import struct

from msgspec import Struct, msgpack


class Message(Struct, array_like=True, forbid_unknown_fields=True):
    pass


class One(Message):
    value: int = 0


class Keys(Message):
    keys: list[bytes]


class Flags(Message):
    flags: bytes


class NodeAddress(Message):
    node: int
    endpoint: bytes


class Hello(Message):
    previous: int
    peer_id: int
    host_id: bytes = b"h"


class HelloReply(Message):
    is_fenced: bool
    session: int
    epoch: int
    client_ttl_us: int
    lease_us: int


class Heartbeat(Message):
    session: int
    leases: list[int] = []
    pins: list[int] = []
    pins_after: int = 0
    pins_upto: int = 0


class HeartbeatReply(Message):
    is_known: bool
    epoch: int
    ended: list[int]
    last_lease: int


NO_PIN, SOFT_PIN, HARD_PIN = range(3)


class PutOptions(Message):
    replicas: int = 1
    is_strict: bool = False
    is_upsert: bool = False
    pin: int = NO_PIN
    soft_pin_us: int = 0
    has_checksums: bool = True
    preferred: list[bytes] = []


class PutItem(Message):
    put_id: int
    key: bytes
    size_bytes: int
    part_bytes: int = 0
    options: int = 0
    parent: bytes = b""
    depth: int = 0
    group: bytes = b""
    group_size: int = 0


class PutStart(Message):
    session: int
    options: list[PutOptions]
    items: list[PutItem]


(
    STARTED,
    EXISTS,
    BUSY,
    OUT_OF_SPACE,
    ABORTED,
    INVALID,
    MAKING_ROOM,
    NOT_ADMITTED,
    TOO_FEW_NODES,
) = range(9)
DONE, UNKNOWN, END_INVALID, SUPERSEDED, GROUP_GONE = range(5)


class Grant(Message):
    outcome: int
    generation: int
    stripe_bytes: int
    copies: int


def places(reply):
    """Return (node, offset) of each placement of a reply."""
    return [
        (reply.nodes[at].node, offset) for at, offset in struct.iter_unpack("<IQ", reply.placements)
    ]


class Space(Message):
    capacity: int
    used: int
    evictable: int
    pinned: int
    quarantined: int
    largest_free_extent: int


class PutStartReply(Message):
    is_known: bool
    peer_id: int
    items: list[Grant]
    nodes: list[NodeAddress]
    placements: bytes
    space: Space

    def places(self):
        """Return (node, offset) of each placement, in the order of the items."""
        return places(self)


class EndItem(Message):
    put_id: int
    key: bytes
    generation: int
    lost: list[int] = []
    dirty: list[int] = []
    failed: list[int] = []
    checksums: int = 1  # how many of the message's are its own


class PutEnd(Message):
    session: int
    items: list[EndItem]
    checksums: bytes


class AbortItem(Message):
    put_id: int
    dirty: list[int] = []
    failed: list[int] = []


class PutAbort(Message):
    session: int
    items: list[AbortItem]


class PutEndReply(Message):
    is_known: bool
    outcomes: list[int]


class Lookup(Message):
    session: int
    stop_at_miss: bool
    is_pin: bool
    released: list[int]
    keys: list[bytes]


class Found(Message):
    found: bool
    has_checksums: bool
    size_bytes: int
    part_bytes: int
    stripe_bytes: int
    generation: int
    copies: int


class LookupReply(Message):
    is_known: bool
    is_too_large: bool
    lease: int
    items: list[Found]
    nodes: list[NodeAddress]
    placements: bytes
    checksums: bytes

    def places(self):
        """Return (node, offset) of each placement, in the order of the items."""
        return places(self)


class Release(Message):
    session: int
    leases: list[int]


class Corrupt(Message):
    key: bytes
    generation: int
    node: int = 0


class Describe(Message):
    keys: list[bytes]


class List(Message):
    cursor: int
    limit: int
    prefix: bytes = b""


class ObjectInfo(Message):
    key: bytes
    is_there: bool
    size_bytes: int
    part_bytes: int
    generation: int
    pin: int
    leases: int
    depth: int
    group: bytes
    copies: list[int]
    nodes: list[int]


class Objects(Message):
    cursor: int
    nodes: list[bytes]
    objects: list[ObjectInfo]


class SetPin(Message):
    pin: int
    soft_pin_us: int
    keys: list[bytes]


COPY, MOVE, DRAIN, UNDRAIN = range(4)
RUNNING, TASK_DONE, TASK_FAILED, TASK_CANCELLED = range(4)


class TaskCreate(Message):
    kind: int
    key: bytes = b""
    source: bytes = b""
    targets: list[bytes] = []


class TaskCreated(Message):
    task: int
    problem: bytes


class TaskQuery(Message):
    tasks: list[int] = []
    is_cancel: bool = False


class TaskInfo(Message):
    task: int
    kind: int
    state: int
    key: bytes
    source: bytes
    done_objects: int
    total_objects: int
    done_bytes: int
    total_bytes: int
    age_us: int
    problem: bytes


class Tasks(Message):
    tasks: list[TaskInfo]


class NodeRegister(Message):
    node: int
    epoch: int
    endpoint: bytes
    host_id: bytes
    name: bytes
    domain: bytes
    capacity_bytes: int


class CopyOrder(Message):
    order: int
    nodes: list[NodeAddress]
    sources: bytes
    generation: int
    offset: int
    size_bytes: int
    part_bytes: int
    checksums: bytes


def sources(order):
    """Return (node, offset) of each source of an order."""
    return [
        (order.nodes[at].node, offset) for at, offset in struct.iter_unpack("<IQ", order.sources)
    ]


class CopyResult(Message):
    order: int
    is_done: bool
    corrupt: list[int] = []


class NodeHeartbeat(Message):
    node: int
    fenced: list[int] = []
    finished: list[CopyResult] = []


NOT_REFUSED, NAME_TAKEN, NODE_INVALID = range(3)


class NodeReply(Message):
    is_known: bool
    epoch: int
    client_ttl_us: int
    fence: list[int]
    orders: list[CopyOrder]
    refusal: int
    problem: bytes


class NodeStats(Message):
    node: int
    endpoint: bytes
    host_id: bytes
    name: bytes
    domain: bytes
    capacity: int
    used: int
    quarantined: int
    state: int


class Counters(Message):
    puts: int
    gets: int
    hits: int
    misses: int
    evictions: int
    out_of_space: int
    aborts: int
    expired_sessions: int
    lost_nodes: int
    fences: int
    corrupt: int
    evicted_bytes: int
    not_admitted: int
    superseded: int
    making_room: int
    repaired_copies: int
    moved_copies: int
    hot_copies: int
    asked_copies: int
    failed_copies: int


class Stats(Message):
    epoch: int
    clients: int
    objects: int
    writing: int
    leases: int
    groups: int
    soft_pinned: int
    hard_pinned: int
    fragmentation_ppm: int
    tasks: int
    copy_orders: int
    hot_objects: int
    space: Space
    counters: Counters
    nodes: list[NodeStats]


# type of the question -> its number and the struct that answers it
ANSWERS = {
    Hello: (1, HelloReply),
    Heartbeat: (2, HeartbeatReply),
    PutStart: (4, PutStartReply),
    PutEnd: (5, PutEndReply),
    PutAbort: (6, PutEndReply),
    Lookup: (7, LookupReply),
    Release: (8, None),
    Corrupt: (12, None),
    NodeRegister: (13, NodeReply),
    NodeHeartbeat: (14, NodeReply),
    TaskCreate: (20, TaskCreated),
    TaskQuery: (21, Tasks),
    Describe: (17, Objects),
    List: (18, Objects),
    SetPin: (19, Flags),
}
GOODBYE, EXISTS_KEYS, MATCH_PREFIX, REMOVE, NODE_GOODBYE, STATS = 3, 9, 10, 11, 15, 16


class Core:
    """A MasterCore, spoken to in structs."""

    def __init__(self, native, **options):
        self.native = native.MasterCore(native.MasterOptions(**options))

    def step(self, message, now_s, fresh_id=0):
        number, answer = ANSWERS[type(message)]
        return self.call(number, message, answer, now_s, fresh_id)

    def call(self, number, message, answer, now_s, fresh_id=0):
        body = self.native.step(number, msgpack.encode(message), now_s=now_s, fresh_id=fresh_id)
        return msgpack.decode(body, type=answer) if answer is not None else None

    def stats(self, now_s=0.0):
        return self.call(STATS, One(), Stats, now_s)


def put_start(session, *items, **options):
    """Return a PutStart of items that share one set of options."""
    return PutStart(session, [PutOptions(**options)], list(items))


def register(node, epoch, endpoint, capacity, *, host=b"h", name=b"", domain=b""):
    """Return a NodeRegister; without a domain of its own each node is one."""
    return NodeRegister(node, epoch, endpoint, host, name, domain or endpoint, capacity)
