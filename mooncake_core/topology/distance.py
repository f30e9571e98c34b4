"""How far devices are from each other and from memory. Pure.

PIX: below one PCI switch. PXB: below several. PHB: over the host bridge. NODE: over the links
between host bridges of one NUMA node. SYS: over the link between NUMA nodes, or not known. The
words are those of `nvidia-smi topo -m`.
"""

from __future__ import annotations

from typing import Literal

from mooncake_core.topology.host import Gpu, Host, Nic, RdmaPort

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
Device = Nic | RdmaPort | Gpu
ORDER: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")

# The own place and that of the switch's port above it.
_SWITCH_LEVELS = 2


def between(host: Host, one: Device, other: Device) -> Distance:
    """Return the distance of two devices; of a bond, that of its nearest link."""
    pairs = [(a, b) for a in _parts(host, one) for b in _parts(host, other)]
    return min((_between(host, a, b) for a, b in pairs), key=ORDER.index)


def to_node(host: Host, device: Device, node: int) -> Distance:
    """Return the distance of a device to the memory of a NUMA node: NODE or SYS."""
    nodes = {numa_node(host, part) for part in _parts(host, device)}
    return "NODE" if node in nodes else "SYS"


def numa_node(host: Host, device: Device) -> int | None:
    """Return a device's NUMA node; where there is only one, it is that one."""
    if len(host.numa) == 1:
        return host.numa[0].node
    return device.numa_node


def _parts(host: Host, device: Device) -> tuple[Device, ...]:
    if not isinstance(device, Nic) or device.pci:
        return (device,)
    parts = tuple(part for part in map(host.nic, device.members) if part is not None)
    return parts or (device,)


def _between(host: Host, one: Device, other: Device) -> Distance:
    shared = _shared(one.pci_path, other.pci_path)
    if shared == 0:
        nodes = numa_node(host, one), numa_node(host, other)
        return "NODE" if nodes[0] == nodes[1] is not None else "SYS"
    if shared == 1:
        return "PHB"
    below = max(len(one.pci_path), len(other.pci_path)) - shared
    return "PIX" if below <= _SWITCH_LEVELS else "PXB"


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Count the equal parts from the host bridge on."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
