"""NUMA nodes and GPUs, from sysfs and /proc/meminfo."""

from __future__ import annotations

import re

from mooncake_core.topology.host import Gpu, NumaNode
from mooncake_core.topology.tree import Tree

_MAKERS = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel"}
_NODES = "sys/devices/system/node"


def read_numa(tree: Tree) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes; a kernel that knows none is one node."""
    numbers = [name[4:] for name in tree.names(_NODES) if re.fullmatch(r"node[0-9]{1,6}", name)]
    if not numbers:
        tree.problems.append(f"/{_NODES}: no NUMA nodes are to be seen; shown as one")
        cpus = tree.text("sys/devices/system/cpu/online") or ""
        return (NumaNode(node=0, cpus=cpus, memory_bytes=total_memory(tree, "proc/meminfo")),)
    return tuple(
        NumaNode(
            node=number,
            cpus=tree.text(f"{_NODES}/node{number}/cpulist") or "",
            memory_bytes=total_memory(tree, f"{_NODES}/node{number}/meminfo"),
        )
        for number in sorted(map(int, numbers))
    )


def total_memory(tree: Tree, path: str) -> int | None:
    """Return the bytes that a meminfo file tells of."""
    match = re.search(r"MemTotal:\s+([0-9]{1,15}) kB", tree.text(path) or "")
    return int(match.group(1)) * 1024 if match else None


def read_gpus(tree: Tree) -> tuple[Gpu, ...]:
    """Return every PCI function of class 0x03, display controllers: VGA, 3D and others."""
    base = "sys/bus/pci/devices"
    return tuple(
        _gpu(tree, f"{base}/{pci}", pci)
        for pci in tree.names(base)
        if (tree.text(f"{base}/{pci}/class") or "").startswith("0x03")
    )


def _gpu(tree: Tree, at: str, pci: str) -> Gpu:
    vendor = (tree.text(f"{at}/vendor") or "").removeprefix("0x")
    maker = _MAKERS.get(vendor)
    return Gpu(
        pci=pci,
        pci_path=tree.pci_path(at),
        vendor=f"{vendor} ({maker})" if maker else vendor,
        device=(tree.text(f"{at}/device") or "").removeprefix("0x"),
        driver=tree.link(f"{at}/driver"),
        numa_node=tree.number(f"{at}/numa_node"),
    )
