"""What a host has, as far as moving bytes is concerned. Pure."""

from __future__ import annotations

from msgspec import Struct


class Nic(Struct, frozen=True, kw_only=True):
    """A network interface of this network namespace."""

    name: str
    kind: str
    """ethernet, loopback, infiniband, or "type N" with the kernel's ARPHRD number."""
    operstate: str
    """up, down, unknown, ...: the kernel's word; loopback's is unknown."""
    speed_mbit_per_s: int | None
    """None where the driver says nothing."""
    mtu: int | None
    is_virtual: bool
    """No device stands behind it."""
    numa_node: int | None
    pci: str
    """PCI address; empty for virtual ones."""
    master: str
    """The bond or bridge that it is a part of; empty: none."""
    addresses: tuple[str, ...]
    """With the prefix length, such as 192.0.2.2/24; IPv6 after IPv4."""


class Gid(Struct, frozen=True, kw_only=True):
    """One address of an RDMA port."""

    index: int
    gid: str
    kind: str
    """RoCE v1, RoCE v2, IB/RoCE v1: the kernel's words; empty where it says nothing."""
    nic: str


class RdmaPort(Struct, frozen=True, kw_only=True):
    """One port of an RDMA device."""

    device: str
    port: int
    state: str
    """ACTIVE, DOWN, ..."""
    link_layer: str
    rate: str
    numa_node: int | None
    pci: str
    gids: tuple[Gid, ...]
    """Those that are set."""


class NumaNode(Struct, frozen=True, kw_only=True):
    """Processors and the memory next to them."""

    node: int
    cpus: str
    """A list of ranges, such as 0-3,8-11."""
    memory_bytes: int | None


class Gpu(Struct, frozen=True, kw_only=True):
    """A display or 3D controller on PCI."""

    pci: str
    vendor: str
    """Four hex digits, with the maker's name where it is a usual one."""
    device: str
    driver: str
    """Empty: none is bound."""
    numa_node: int | None
    name: str
    """From NVML; empty without it."""


class Host(Struct, frozen=True, kw_only=True):
    """The inventory, and what of it could not be read."""

    nics: tuple[Nic, ...]
    rdma: tuple[RdmaPort, ...]
    numa: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...]
