"""What a master says about its store. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, msgpack

NodeState = Literal["online", "suspected", "draining"]

NODE_STATES: tuple[NodeState, ...] = ("online", "suspected", "draining")
"""By their numbers on the wire."""


class SpaceStats(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes over all nodes; the order is the wire's."""

    capacity_bytes: int
    used_bytes: int
    """evictable + pinned + quarantined, headers and rounding included."""
    evictable_bytes: int
    pinned_bytes: int
    """Leased by readers or being written."""
    quarantined_bytes: int
    """A lost writer could still write there."""
    largest_free_extent_bytes: int


class NodeStats(Struct, frozen=True, kw_only=True):
    """One store node."""

    id: str
    """Hex id of its segment; new when it has taken new memory."""
    endpoint: str
    host_id: str
    name: str
    """What people call it: preferred nodes, drains and copies name it so."""
    domain: str
    """No two copies of an object are in one."""
    capacity_bytes: int
    used_bytes: int
    quarantined_bytes: int
    state: NodeState
    """suspected: silent; not used until it is heard again, lost after a while.
    draining: it takes nothing new, and what it holds is moved away."""


class ClusterStats(Struct, frozen=True, kw_only=True):
    """The whole store at one moment. Counters (see COUNTERS) are since the master's start."""

    epoch: int
    """Random; of this start of the master."""
    clients: int
    """Sessions of clients."""
    objects: int
    """Committed."""
    writing: int
    """Started, not yet committed or aborted."""
    leases: int
    """Of open reads and views."""
    groups: int
    """Of objects that live and die together."""
    soft_pinned_bytes: int
    """Evicted only when nothing else is left."""
    hard_pinned_bytes: int
    """Never evicted."""
    fragmentation: float
    """Share of the free bytes that is not in the largest free extent of a node."""
    capacity_bytes: int
    """That the nodes lend."""
    used_bytes: int
    """Evictable, pinned and quarantined, headers and rounding included."""
    evictable_bytes: int
    """Of objects that may go to make room."""
    pinned_bytes: int
    """Leased by readers, being written, or pinned for good."""
    quarantined_bytes: int
    """A lost writer could still write there."""
    largest_free_extent_bytes: int
    """The largest run of free bytes of any node."""
    puts: int
    """Objects committed."""
    gets: int
    """Keys looked up for reading: hits + misses."""
    hits: int
    """Keys that were there to be read."""
    misses: int
    """Keys that were not there to be read."""
    evictions: int
    """Objects that went to make room."""
    out_of_space: int
    """Times that no room could be made for a put; clients ask twice before they give up."""
    aborts: int
    """Puts that were given up."""
    expired_sessions: int
    """Clients that fell silent."""
    lost_nodes: int
    """Nodes that fell silent or left, with what they held."""
    fences: int
    """Writers that nodes were told to fence."""
    corrupt: int
    """Copies dropped because a reader found other bytes than were committed."""
    evicted_bytes: int
    """Of objects that went to make room."""
    not_admitted: int
    """Puts that the admission policy did not want."""
    superseded: int
    """Puts that ended when their key had been put by another."""
    making_room: int
    """Puts that had to ask again, for more was to be evicted than goes in one step."""
    repaired_copies: int
    """Made in place of copies that were lost or corrupt."""
    moved_copies: int
    """By moves and drains."""
    hot_copies: int
    """Made of objects that are looked up very often."""
    asked_copies: int
    """Made by copy tasks."""
    failed_copies: int
    """Begun in the background, and given up."""
    tasks: int
    """Copies, moves and drains that were asked for and run."""
    copy_orders: int
    """Stripes that nodes are told to fetch, or will be."""
    hot_objects: int
    """Looked up so often that they get further copies."""
    nodes: list[NodeStats]
    """Those that are not lost."""


class _Node(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    id: int
    endpoint: bytes
    host_id: bytes
    name: bytes
    domain: bytes
    capacity_bytes: int
    used_bytes: int
    quarantined_bytes: int
    state: int


class _Counters(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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


COUNTERS = _Counters.__struct_fields__
"""Fields of ClusterStats that only grow."""


class _Stats(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: int
    clients: int
    objects: int
    writing: int
    leases: int
    groups: int
    soft_pinned_bytes: int
    hard_pinned_bytes: int
    fragmentation_ppm: int
    tasks: int
    copy_orders: int
    hot_objects: int
    space: SpaceStats
    counters: _Counters
    nodes: list[_Node]


def decode_stats(body: bytes) -> ClusterStats:
    """Return the stats that the body of a master's answer holds."""
    raw = msgpack.decode(body, type=_Stats)
    return ClusterStats(
        epoch=raw.epoch,
        clients=raw.clients,
        objects=raw.objects,
        writing=raw.writing,
        leases=raw.leases,
        groups=raw.groups,
        tasks=raw.tasks,
        copy_orders=raw.copy_orders,
        hot_objects=raw.hot_objects,
        soft_pinned_bytes=raw.soft_pinned_bytes,
        hard_pinned_bytes=raw.hard_pinned_bytes,
        fragmentation=raw.fragmentation_ppm / 1e6,
        nodes=[_node(node) for node in raw.nodes],
        **{name: getattr(raw.space, name) for name in SpaceStats.__struct_fields__},
        **{name: getattr(raw.counters, name) for name in _Counters.__struct_fields__},
    )


def _node(raw: _Node) -> NodeStats:
    return NodeStats(
        id=f"{raw.id:016x}",
        endpoint=raw.endpoint.decode(errors="replace"),
        host_id=raw.host_id.decode(errors="replace"),
        name=raw.name.decode(errors="replace"),
        domain=raw.domain.decode(errors="replace"),
        capacity_bytes=raw.capacity_bytes,
        used_bytes=raw.used_bytes,
        quarantined_bytes=raw.quarantined_bytes,
        state=NODE_STATES[raw.state],
    )
