"""Network interfaces, from /sys/class/net."""

from __future__ import annotations

import re

from mooncake_core.topology.addresses import Addresses
from mooncake_core.topology.host import Nic
from mooncake_core.topology.tree import Tree

# Source: include/uapi/linux/if_arp.h, if.h.
_KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
_IFF_UP = 1


def read_nics(tree: Tree, addresses: Addresses) -> tuple[Nic, ...]:
    """Return every interface, in the order of their names."""
    # bonding_masters, a file, is beside them.
    names = [name for name in tree.names("sys/class/net") if name != "bonding_masters"]
    if not names:
        tree.problems.append("/sys/class/net: no network interface is to be seen")
    return tuple(_nic(tree, name, addresses.get(name, ())) for name in names)


def _nic(tree: Tree, name: str, addresses: tuple[str, ...]) -> Nic:
    base = f"sys/class/net/{name}"
    kind = tree.number(f"{base}/type")
    flags = tree.number(f"{base}/flags", base=16)
    carrier = tree.number(f"{base}/carrier")
    return Nic(
        name=name,
        kind="" if kind is None else _KINDS.get(kind, f"type {kind}"),
        maker=_maker(tree, base),
        operstate=tree.text(f"{base}/operstate") or "",
        is_up=None if flags is None else bool(flags & _IFF_UP),
        has_carrier=None if carrier is None else carrier != 0,
        speed_mbit_per_s=tree.number(f"{base}/speed") or None,
        mtu=tree.number(f"{base}/mtu"),
        is_virtual=not tree.has(f"{base}/device"),
        is_vf=tree.has(f"{base}/device/physfn"),
        numa_node=tree.number(f"{base}/device/numa_node"),
        pci=tree.pci(f"{base}/device"),
        pci_path=tree.pci_path(f"{base}/device"),
        master=tree.link(f"{base}/master"),
        members=tuple((tree.text(f"{base}/bonding/slaves") or "").split()),
        bond_mode=tree.text(f"{base}/bonding/mode") or "",
        addresses=addresses,
    )


def _maker(tree: Tree, base: str) -> str:
    for folder, maker in (("bonding", "bond"), ("bridge", "bridge"), ("tun_flags", "tun")):
        if tree.has(f"{base}/{folder}"):
            return maker
    match = re.search(r"^DEVTYPE=(\S+)$", tree.text(f"{base}/uevent") or "", re.MULTILINE)
    return match.group(1) if match else ""
