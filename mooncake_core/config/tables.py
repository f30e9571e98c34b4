"""Every table that a configuration file may hold. Pure.

A daemon's file is the struct named after it: `mooncake master` reads MasterConfig, and so on. Keys
that are absent have the default shown; unknown ones are errors. Sizes are strings with a unit.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mooncake_core.errors import ConfigError
from mooncake_core.units import parse_size

_HOST = r"(\[[0-9A-Fa-f:.]+(%[^:\s\[\]]+)?\]|[^:\s\[\]]+)"
_PORT = r"0*([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
Address = Annotated[
    str,
    Meta(
        pattern=rf"^{_HOST}:{_PORT}$",
        description="host:port with a port up to 65535, such as 127.0.0.1:7400 or [::1]:7400",
    ),
]
"""host:port; an IPv6 host stands in brackets; port 0 takes a free one."""
HostAddress = Annotated[
    str,
    Meta(
        pattern=r"^([^:\s\[\]]+|[0-9A-Fa-f:.]+(%[^:\s\[\]]+)?)$",
        description="an address or an interface name without a port or brackets, such as eth1, "
        "10.0.0.2 or fd00::2",
    ),
]
"""A host address of this machine, or one of its interfaces' names."""
Size = Annotated[
    str, Meta(description='a size: a text of a number and a unit, such as "512 MiB" or "1.5 GiB"')
]
"""A number and a unit, such as "1.5 GiB"; a table that has one checks it with `size_bytes`."""
PositiveSeconds = Annotated[float, Meta(gt=0, le=86_400)]


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables."""


def size_bytes(key: str, text: str, *, minimum: int = 1) -> int:
    """Return the bytes of a Size, or raise ConfigError that starts with `key`."""
    try:
        size = parse_size(text)
    except ConfigError as error:
        raise ValueError(f"{key}: {error}") from error
    if size < minimum:
        raise ValueError(f"{key}: {text!r} is {size} bytes; at least {minimum} are needed")
    return size


def _is_wildcard(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # What the resolver takes for 0.0.0.0 besides: 0, 0.0, 0x0, 000.000.000.000.
        return host == "*" or re.fullmatch(r"0[x0]*(\.0[x0]*){0,3}", host.lower()) is not None
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_unspecified or (mapped is not None and mapped.is_unspecified)


def refuse_wildcard(key: str, address: str) -> None:
    """Raise ValueError if `address`, which peers are told, names every interface and so no host."""
    if isinstance(address, str) and _is_wildcard(address.rpartition(":")[0].strip("[]")):
        raise ValueError(
            f"{key}: {address!r} is also what peers are told, and leads them nowhere; "
            "give the address of the interface that they reach"
        )


class TransferConfig(Table, frozen=True):
    """`[transfer]`: how bytes move."""

    listen: Address = "127.0.0.1:0"
    """Where peers reach this process's memory. The address is also what peers are told."""
    same_host: Literal["shm", "network"] = "shm"
    """How to reach peers on this host: by mapping their memory, or over the network as others."""
    protocol: Literal["auto", "tcp", "rdma"] = "auto"
    """The network. auto: the fastest that works here; what it took and why is logged. The others
    are obeyed exactly: rdma where there is none is an error, and tcp touches no RDMA device."""
    addresses: tuple[HostAddress, ...] = ()
    """Further addresses of this host, or names of its interfaces; batches are spread over all of
    them. "auto" alone: every interface that `mooncake topo` calls usable."""
    topology: str = ""
    """A JSON file that says which interfaces are near which memory; empty: those of
    the same NUMA node are."""
    io_threads: Annotated[int, Meta(ge=1, le=64)] = 2
    """Threads that carry out submitted batches. More: more batches at once, more contention."""
    serve_threads: Annotated[int, Meta(ge=0, le=64)] = 0
    """Threads that move the bytes of TCP peers; 0: one a processor, at most four. More: faster with
    several connections at once, more cores taken."""
    copy_threads: Annotated[int, Meta(ge=-1, le=64)] = -1
    """Threads that help to copy batches of 384 KiB or more over shared memory; 0: none; -1: one a
    processor but one, at most four."""
    slice_bytes: Annotated[int, Meta(ge=4096, le=1 << 20)] = 1 << 20
    """The most that goes over one path at once. Less: spread finer over paths, more messages."""
    timeout_s: PositiveSeconds = 10.0
    """A batch that takes longer has failed."""

    def __post_init__(self) -> None:
        """Refuse an address that no peer could use."""
        refuse_wildcard("listen", self.listen)
        if isinstance(self.addresses, str):
            raise ValueError(f"addresses: {self.addresses!r} is one text; a list is needed")
        for address in self.addresses:
            refuse_wildcard("addresses", f"{address}:0")
        if "auto" in self.addresses and len(self.addresses) > 1:
            raise ValueError('addresses: "auto" stands alone; it already is every usable interface')


class StoreClientConfig(Table, frozen=True):
    """`[pool]`: how a process uses the store."""

    master: Address = "127.0.0.1:7400"
    """Where the master listens."""
    replicas: Annotated[int, Meta(ge=1, le=16)] = 1
    """Copies of each object, on distinct nodes; where nodes are fewer, so are the copies."""
    timeout_s: PositiveSeconds = 5.0
    """How long one call waits for the master."""
    checksums: bool = True
    """Compute them on put and verify them on get; without, wrong bytes are not noticed."""


class MasterConfig(Table, frozen=True):
    """`mooncake master`."""

    listen: Address = "127.0.0.1:7400"
    """Where clients and store nodes connect."""
    admin: Address = "127.0.0.1:7401"
    """HTTP: /health, /metrics, /status."""
    client_ttl_s: PositiveSeconds = 3.0
    """A client or node that is silent for longer is expelled and its writes are fenced."""
    lease_s: PositiveSeconds = 5.0
    """How long a read is protected without renewal; clients renew while a read is in flight."""
    eviction: Literal["lru", "fifo", "lfu"] = "lru"
    """What goes first when there is no room: what was read or put longest ago, what was put first,
    or what was read least often. Of a chain the end goes first."""
    admission: Literal["all", "second-put"] = "all"
    """Which puts are worth it. second-put: of what is put again within a time; it keeps what is
    used once from evicting what is used often, and costs each object one put more."""
    admission_window_s: PositiveSeconds = 3600.0
    """second-put: for how long, at least, a first put is remembered."""
    admission_keys: Annotated[int, Meta(ge=1, le=1 << 22)] = 1 << 20
    """second-put: how many first puts are remembered at a time; 4 bytes each. With more of them in
    the window the oldest are forgotten early."""
    placement: Literal["free-ratio-first", "random", "round-robin", "local-first"] = (
        "free-ratio-first"
    )
    """Which nodes get an object: those with the largest share free, any, each in turn, or those on
    the writer's host. Nodes that a put prefers go before."""
    stripe: Size = "64 MiB"
    """A larger object is cut into pieces of about this size, spread over the nodes. Less: large
    objects find room in smaller gaps and are read from more nodes at once, with more messages."""
    repairs: bool = True
    """An object that has lost a copy, to a fault or a node, gets another in the background."""
    hot_gets_per_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """An object that is looked up more often gets a copy more, in another domain, where there is
    room; all such copies together take at most a tenth of the pool. 0: never."""
    hot_replicas: Annotated[int, Meta(ge=1, le=16)] = 2
    """Copies that a hot object may have in all."""
    heat_half_life_s: PositiveSeconds = 10.0
    """After which a lookup counts half. Less: sooner hot and sooner forgotten."""

    def __post_init__(self) -> None:
        """Refuse a stripe that is no size."""
        size_bytes("stripe", self.stripe, minimum=1 << 18)

    @property
    def stripe_bytes(self) -> int:
        """The stripe in bytes."""
        return parse_size(self.stripe)


class StoreConfig(Table, frozen=True):
    """`mooncake store`: lends memory to the pool."""

    master: Address = "127.0.0.1:7400"
    """Where the master listens."""
    capacity: Size = "1 GiB"
    """DRAM lent. Taken at start-up."""
    name: Annotated[str, Meta(max_length=64)] = ""
    """What people call it, and writers that prefer it. Unique: while another node has it, this one
    is not taken in; if that one lives, this one ends after some seconds. Empty: its transfer
    address."""
    domain: Annotated[str, Meta(max_length=64)] = ""
    """What fails at once with it: a host, a rack. Two copies of an object are never in one domain.
    Empty: the host."""
    drain_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """When it is told to stop (SIGTERM, Ctrl-C), how long it may first take to move what it holds
    to other nodes, as far as that has room there; 0: it leaves at once."""
    transfer: TransferConfig = TransferConfig()

    def __post_init__(self) -> None:
        """Refuse a capacity that is no size."""
        size_bytes("capacity", self.capacity, minimum=1 << 20)

    @property
    def capacity_bytes(self) -> int:
        """The capacity in bytes."""
        return parse_size(self.capacity)


class ModelConfig(Table, frozen=True):
    """`[model]`: what is served."""

    path: str = "smollm2-135m-instruct"
    """A folder with config.json, *.safetensors and tokenizer.json; a .gguf file; the built-in name;
    or dummy:CONFIG.json for random weights."""
    name: str = ""
    """What clients call it; empty: the path's last part."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """auto: bfloat16 where the device multiplies it natively, else float32."""
    device: str = "auto"
    """auto (cuda where there is one, else cpu), cpu, cuda or cuda:N."""
    backend: Literal["auto", "native", "transformers"] = "auto"
    """auto: the own runtime where it knows the architecture, else transformers."""


class WorkerConfig(Table, frozen=True):
    """Base of the two instance kinds."""

    listen: Address = "127.0.0.1:0"
    """HTTP: requests from the conductor, /health, /metrics. Also the address that it is told."""
    conductor: Address = "127.0.0.1:8000"
    """Where to register, and where it is told how busy this instance is."""
    model: ModelConfig = ModelConfig()
    transfer: TransferConfig = TransferConfig()
    pool_tokens: Annotated[int, Meta(ge=256, le=1 << 30)] = 32_768
    """KV slots. Memory is taken at start-up: this times the model's KV bytes a token."""
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Compute threads. On a shared machine more than its share of cores makes all slower."""

    def __post_init__(self) -> None:
        """Refuse an address that the conductor could not use."""
        refuse_wildcard("listen", self.listen)


class PrefillConfig(WorkerConfig, frozen=True):
    """`mooncake prefill`: reads prompts."""

    pool: StoreClientConfig = StoreClientConfig()
    block_tokens: Annotated[int, Meta(ge=16, le=4096)] = 256
    """The prefill grid and the store's unit; equal on all instances of a cluster."""


class DecodeConfig(WorkerConfig, frozen=True):
    """`mooncake decode`: writes answers."""

    max_batch: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Sequences a step."""
    block_tokens: Annotated[int, Meta(ge=16, le=4096)] = 256
    """Equal on all instances of a cluster."""


class SloConfig(Table, frozen=True):
    """`[slo]`: what a request is refused for, with 429, when it cannot be met."""

    ttft_s: PositiveSeconds = 120.0
    """Time to the first token. Source: FAST '25 uses 30 s on GPUs; a CPU needs more."""
    tbt_s: PositiveSeconds = 5.0
    """Time between two tokens."""


class ConductorConfig(Table, frozen=True):
    """`mooncake conductor`: the OpenAI-compatible gateway and scheduler."""

    listen: Address = "127.0.0.1:8000"
    """HTTP: /v1/chat/completions, /v1/completions, /v1/models, /health, /metrics, /status."""
    model: ModelConfig = ModelConfig()
    pool: StoreClientConfig = StoreClientConfig()
    slo: SloConfig = SloConfig()
    balancing_threshold: Annotated[float, Meta(ge=1, le=1e6)] = 2.0
    """Fetch from afar when the best match is this many times the local one. FAST '25 Algorithm 1
    does not publish its value."""
    default_max_tokens: Annotated[int, Meta(ge=1, le=1 << 20)] = 512
    """Answer length when the request names none; cut to what the context leaves."""
    request_timeout_s: PositiveSeconds = 300.0
    """The longest that any request may take."""
    instance_ttl_s: PositiveSeconds = 3.0
    """An instance that is silent for longer is dropped."""
    max_body: Size = "4 MiB"
    """The largest request body that is read; a larger one is answered with 413."""

    def __post_init__(self) -> None:
        """Refuse a max_body that is no size."""
        size_bytes("max_body", self.max_body)

    @property
    def max_body_bytes(self) -> int:
        """The largest request body accepted, in bytes."""
        return parse_size(self.max_body)


class UpConfig(Table, frozen=True):
    """`mooncake up`: a whole cluster on this machine."""

    listen: Address = "127.0.0.1:8000"
    """The public endpoint."""
    model: ModelConfig = ModelConfig()
    stores: Annotated[int, Meta(ge=1, le=64)] = 2
    """Store nodes."""
    prefills: Annotated[int, Meta(ge=1, le=64)] = 2
    """Prefill instances."""
    decodes: Annotated[int, Meta(ge=1, le=64)] = 1
    """Decode instances."""
    store_capacity: Size = "1 GiB"
    """Of each store node."""
    pool_tokens: Annotated[int, Meta(ge=256, le=1 << 30)] = 32_768
    """KV slots of each prefill and decode instance."""
    max_batch: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Sequences a step of each decode instance."""
    replicas: Annotated[int, Meta(ge=1, le=16)] = 1
    """Copies of each stored block; more than there are store nodes is as many as there are."""
    same_host: Literal["shm", "network"] = "shm"
    """How the processes reach each other's memory: by mapping it, or over loopback TCP."""
    slo: SloConfig = SloConfig()

    def __post_init__(self) -> None:
        """Refuse a store_capacity that is no size."""
        size_bytes("store_capacity", self.store_capacity, minimum=1 << 20)
