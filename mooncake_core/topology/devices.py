"""RDMA ports, NUMA nodes and GPUs, from sysfs and /proc/meminfo."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mooncake_core.topology.host import Gid, Gpu, NumaNode, RdmaPort
from mooncake_core.topology.tree import Tree

_UNSET_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_MAKERS = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel"}
_NODES = "sys/devices/system/node"


def read_rdma(tree: Tree) -> tuple[RdmaPort, ...]:
    """Return every port of every RDMA device."""
    devices = tree.names("sys/class/infiniband")
    return tuple(
        _port(tree, device, int(port))
        for device in devices
        for port in tree.names(f"sys/class/infiniband/{device}/ports")
        if port.isdigit()
    )


def _port(tree: Tree, device: str, port: int) -> RdmaPort:
    base = f"sys/class/infiniband/{device}"
    at = f"{base}/ports/{port}"
    uevent = tree.text(f"{base}/device/uevent") or ""
    slot = re.search(r"^PCI_SLOT_NAME=(\S+)$", uevent, re.MULTILINE)
    return RdmaPort(
        device=device,
        port=port,
        # The kernel writes "4: ACTIVE".
        state=(tree.text(f"{at}/state") or "").split(": ")[-1],
        link_layer=tree.text(f"{at}/link_layer") or "",
        rate=tree.text(f"{at}/rate") or "",
        numa_node=tree.number(f"{base}/device/numa_node"),
        pci=slot.group(1) if slot else tree.link(f"{base}/device"),
        gids=tuple(_gids(tree, at)),
    )


def _gids(tree: Tree, at: str) -> Iterator[Gid]:
    for index in tree.names(f"{at}/gids"):
        gid = tree.text(f"{at}/gids/{index}")
        if gid and gid != _UNSET_GID and index.isdigit():
            yield Gid(
                index=int(index),
                gid=gid,
                kind=tree.text(f"{at}/gid_attrs/types/{index}") or "",
                nic=tree.text(f"{at}/gid_attrs/ndevs/{index}") or "",
            )


def read_numa(tree: Tree) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes; a kernel that knows none is one node."""
    numbers = [name[4:] for name in tree.names(_NODES) if re.fullmatch(r"node[0-9]+", name)]
    if not numbers:
        tree.problems.append(f"/{_NODES}: no NUMA nodes are to be seen; shown as one")
        cpus = tree.text("sys/devices/system/cpu/online") or ""
        return (NumaNode(node=0, cpus=cpus, memory_bytes=_total(tree, "proc/meminfo")),)
    return tuple(
        NumaNode(
            node=number,
            cpus=tree.text(f"{_NODES}/node{number}/cpulist") or "",
            memory_bytes=_total(tree, f"{_NODES}/node{number}/meminfo"),
        )
        for number in sorted(map(int, numbers))
    )


def _total(tree: Tree, path: str) -> int | None:
    match = re.search(r"MemTotal:\s+([0-9]+) kB", tree.text(path) or "")
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
        vendor=f"{vendor} ({maker})" if maker else vendor,
        device=(tree.text(f"{at}/device") or "").removeprefix("0x"),
        driver=tree.link(f"{at}/driver"),
        numa_node=tree.number(f"{at}/numa_node"),
        name="",
    )
