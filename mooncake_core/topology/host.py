"""What a host has, as far as moving bytes is concerned. Pure.

Text is the kernel's own word, empty where it says nothing; numbers are None then.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Literal

from msgspec import Struct

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
"""An address with its network."""


# A port may have hundreds of GIDs, and every question about them starts here.
@lru_cache(maxsize=1024)
def _interface(text: str) -> Interface:
    return ipaddress.ip_interface(text)


@lru_cache(maxsize=4096)
def _gid_address(text: str) -> IpAddress | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address


class Nic(Struct, frozen=True, kw_only=True):
    """A network interface of this network namespace."""

    name: str
    kind: str = "ethernet"
    """ethernet, loopback, infiniband, or "type N" with the kernel's ARPHRD number."""
    maker: str = ""
    """bond, bridge, vlan, tun, macvlan, ...: what made it; empty: nothing special."""
    operstate: str = "up"
    """up, down, unknown, ...; loopback's is unknown."""
    is_up: bool | None = None
    """Whether it was set up; a cable may be missing all the same."""
    has_carrier: bool | None = None
    speed_mbit_per_s: int | None = None
    mtu: int | None = None
    is_virtual: bool = False
    """No device stands behind it."""
    is_vf: bool = False
    """A virtual function: a part of a card, lent to a container or a virtual machine."""
    numa_node: int | None = None
    pci: str = ""
    """PCI address; empty for virtual ones."""
    pci_path: tuple[str, ...] = ()
    """From the host bridge, such as pci0000:00, over every bridge to the device itself."""
    master: str = ""
    """The bond or bridge that it is a part of; empty: none."""
    members: tuple[str, ...] = ()
    """Of a bond."""
    bond_mode: str = ""
    addresses: tuple[str, ...] = ()
    """With the prefix length, such as 192.0.2.2/24; IPv6 after IPv4, deprecated ones last."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the addresses, to compute with."""
        return tuple(map(_interface, self.addresses))


class Route(Struct, frozen=True, kw_only=True):
    """Which interface leads to a network."""

    nic: str
    network: str
    """Such as 192.0.2.0/24; 0.0.0.0/0 and ::/0 are all others."""
    gateway: str = ""
    """Empty: the network is connected to the interface itself."""
    metric: int = 0


class Gid(Struct, frozen=True, kw_only=True):
    """One address of an RDMA port."""

    index: int
    gid: str
    kind: str = ""
    """RoCE v1, RoCE v2, IB/RoCE v1."""
    nic: str = ""
    """The network interface that it belongs to."""

    def address(self) -> IpAddress | None:
        """Return the address that it stands for, IPv4 where it is mapped; None: garbage."""
        return _gid_address(self.gid)


class RdmaPort(Struct, frozen=True, kw_only=True):
    """One port of an RDMA device."""

    device: str
    port: int = 1
    state: str = "ACTIVE"
    """ACTIVE, DOWN, ..."""
    phys_state: str = ""
    """LinkUp, Disabled, Polling, ..."""
    link_layer: str = "Ethernet"
    rate: str = ""
    node_type: str = ""
    """With its number, such as "1: CA"."""
    numa_node: int | None = None
    pci: str = ""
    pci_path: tuple[str, ...] = ()
    """As of a Nic."""
    is_vf: bool = False
    nics: tuple[str, ...] = ()
    """The network interfaces of the same device."""
    pkeys: tuple[str, ...] = ()
    """Those that are set, such as 0xffff."""
    uverbs: str = ""
    """The name by which programs open the device, such as uverbs0."""
    uverbs_node: Literal["there", "denied", "missing", "unknown"] = "unknown"
    """Whether /dev/infiniband has it and it may be opened; unknown: a copy has no /dev."""
    gids: tuple[Gid, ...] = ()
    """Those that are set."""

    @property
    def name(self) -> str:
        """The device and its port, such as mlx5_0/1."""
        return f"{self.device}/{self.port}"


class NumaNode(Struct, frozen=True, kw_only=True):
    """Processors and the memory next to them."""

    node: int
    cpus: str = ""
    """A list of ranges, such as 0-3,8-11."""
    memory_bytes: int | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """A display or 3D controller on PCI."""

    pci: str
    pci_path: tuple[str, ...] = ()
    """As of a Nic."""
    vendor: str = ""
    """Four hex digits, with the maker's name where it is a usual one."""
    device: str = ""
    driver: str = ""
    """Empty: none is bound."""
    numa_node: int | None = None
    name: str = ""
    """From NVML; empty without it."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the kernel lets this process have; None: not known, or no limit where that is said."""

    memlock: str = ""
    """Bytes that may be pinned, or "unlimited"."""
    cgroup_memory: str = ""
    """Bytes, or "unlimited"."""
    cgroup_cpus: str = ""
    """A list of ranges."""
    shm_bytes: int | None = None
    """Of /dev/shm."""
    local_ports: str = ""
    """First and last port that a connection may be given, such as 32768-60999."""


class Host(Struct, frozen=True, kw_only=True):
    """The inventory, and what of it could not be read."""

    nics: tuple[Nic, ...] = ()
    routes: tuple[Route, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    has_rdma_class: bool = False
    """Whether there is a /sys/class/infiniband."""
    numa: tuple[NumaNode, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    limits: Limits = Limits()
    problems: tuple[str, ...] = ()

    def nic(self, name: str) -> Nic | None:
        """Return an interface by its name."""
        return next((nic for nic in self.nics if nic.name == name), None)
