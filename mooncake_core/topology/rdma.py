"""RDMA ports, from /sys/class/infiniband and, where programs open them, /dev/infiniband."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from mooncake_core.topology.host import Gid, IpAddress, RdmaPort
from mooncake_core.topology.tree import Tree

CLASS = "sys/class/infiniband"
_VERBS = "sys/class/infiniband_verbs"
_UNSET_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def read_rdma(tree: Tree) -> tuple[RdmaPort, ...]:
    """Return every port of every RDMA device."""
    # By the device's name: /dev/infiniband has uverbs0, and nothing that is called mlx5_0.
    uverbs = {tree.text(f"{_VERBS}/{name}/ibdev"): name for name in tree.names(_VERBS)}
    return tuple(
        _port(tree, device, int(port), uverbs.get(device, ""))
        for device in tree.names(CLASS)
        for port in tree.names(f"{CLASS}/{device}/ports")
        if re.fullmatch(r"[0-9]{1,3}", port)
    )


def gid_owners(ports: Sequence[RdmaPort]) -> dict[IpAddress, str]:
    """Return the address of each GID -> the interface that it belongs to."""
    gids = (gid for port in ports for gid in port.gids)
    return {address: gid.nic for gid in gids if (address := gid.address()) is not None}


def _port(tree: Tree, device: str, port: int, uverbs: str) -> RdmaPort:
    base = f"{CLASS}/{device}"
    at = f"{base}/ports/{port}"
    return RdmaPort(
        device=device,
        port=port,
        state=_word(tree, f"{at}/state"),
        phys_state=_word(tree, f"{at}/phys_state"),
        link_layer=tree.text(f"{at}/link_layer") or "",
        rate=tree.text(f"{at}/rate") or "",
        node_type=tree.text(f"{base}/node_type") or "",
        numa_node=tree.number(f"{base}/device/numa_node"),
        pci=tree.pci(f"{base}/device") or tree.link(f"{base}/device"),
        pci_path=tree.pci_path(f"{base}/device"),
        is_vf=tree.has(f"{base}/device/physfn"),
        nics=tuple(tree.names(f"{base}/device/net")),
        pkeys=tuple(_pkeys(tree, at)),
        uverbs=uverbs,
        uverbs_node=_node(tree, uverbs),
        gids=tuple(_gids(tree, at)),
    )


def _word(tree: Tree, path: str) -> str:
    """The kernel writes "4: ACTIVE"."""
    return (tree.text(path) or "").split(": ")[-1]


def _node(tree: Tree, uverbs: str) -> Literal["there", "denied", "missing", "unknown"]:
    if not tree.has("dev"):
        return "unknown"
    path = tree.root / "dev/infiniband" / uverbs
    if not uverbs or not os.path.exists(path):
        return "missing"
    return "there" if os.access(path, os.R_OK | os.W_OK) else "denied"


def _pkeys(tree: Tree, at: str) -> Iterator[str]:
    for index in tree.names(f"{at}/pkeys"):
        pkey = tree.text(f"{at}/pkeys/{index}")
        if pkey and pkey != "0x0000":
            yield pkey


def _gids(tree: Tree, at: str) -> Iterator[Gid]:
    for index in tree.names(f"{at}/gids"):
        gid = tree.text(f"{at}/gids/{index}")
        if gid and gid != _UNSET_GID and re.fullmatch(r"[0-9]{1,6}", index):
            yield Gid(
                index=int(index),
                gid=gid,
                kind=tree.text(f"{at}/gid_attrs/types/{index}") or "",
                nic=tree.text(f"{at}/gid_attrs/ndevs/{index}") or "",
            )
