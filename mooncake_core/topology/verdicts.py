"""Whether each device can be used, and why not. Pure.

A device is usable with the codes ok and vf: a virtual function works like any card, only its rate
is shared. What makes a device worse but not useless is a remark.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from mooncake_core.topology.filters import EVERYTHING, Filter
from mooncake_core.topology.gids import best_gid, is_here, is_link_local
from mooncake_core.topology.host import Host, Nic, RdmaPort

Code = Literal[
    "ok",
    "vf",
    "excluded-by-filter",
    "not-readable",
    "down",
    "link-layer-unknown",
    "no-uverbs",
    "limited-pkey",
    "no-gid",
    "bond-slave",
    "bridge-port",
    "loopback",
    "bridge",
    "virtual",
    "tun",
    "no-carrier",
    "no-address",
]


class Verdict(Struct, frozen=True, kw_only=True):
    """What is to be thought of one device."""

    name: str
    """Of the interface; of an RDMA port device/port."""
    kind: Literal["rdma", "interface"]
    code: Code
    reason: str
    """One sentence."""
    remarks: tuple[str, ...] = ()
    is_usable: bool
    """Whether bytes may be moved over it."""


Finding = tuple[Code, str]

_USABLE = ("ok", "vf")

# Names that container runtimes, hypervisors and overlays give: the address behind one means
# something on this host only.
_SKIPPED: tuple[tuple[Code, tuple[str, ...], str], ...] = (
    (
        "bridge",
        ("docker*", "br-*", "virbr*", "cni*", "podman*", "lxcbr*", "lxdbr*"),
        "a bridge of containers or virtual machines",
    ),
    (
        "virtual",
        ("veth*", "cali*", "flannel*", "vxlan*", "cilium*", "kube-*", "vnet*", "nodelocaldns"),
        "an end of a container's or an overlay's network",
    ),
    ("virtual", ("dummy*", "ifb*"), "a pseudo device, which reaches nobody"),
    ("tun", ("tun*", "tap*", "wg*", "utun*", "ppp*", "tailscale*"), "a tunnel"),
)


def judge(host: Host, chosen: Filter = EVERYTHING) -> tuple[Verdict, ...]:
    """Return a verdict for every RDMA port, then for every network interface."""
    ports = [_judge_port(host, port, chosen) for port in host.rdma]
    return (*ports, *(_judge_nic(host, nic, chosen) for nic in host.nics))


def usable_nics(host: Host, chosen: Filter = EVERYTHING) -> tuple[Nic, ...]:
    """Return the network interfaces that can be used."""
    return tuple(nic for nic in host.nics if _judge_nic(host, nic, chosen).is_usable)


def usable_ports(host: Host, chosen: Filter = EVERYTHING) -> tuple[RdmaPort, ...]:
    """Return the RDMA ports that can be used."""
    return tuple(port for port in host.rdma if _judge_port(host, port, chosen).is_usable)


def rdma_reasons(host: Host, chosen: Filter = EVERYTHING) -> tuple[str, ...]:
    """Return why RDMA cannot be used here, a line a port; empty: at least one port is usable."""
    if not host.has_rdma_class:
        return ("no /sys/class/infiniband: no RDMA driver is loaded, or a container hides it",)
    if not host.rdma:
        return ("/sys/class/infiniband has no device",)
    verdicts = [_judge_port(host, port, chosen) for port in host.rdma]
    if any(verdict.is_usable for verdict in verdicts):
        return ()
    return tuple(f"{each.name}: {each.code}: {each.reason}" for each in verdicts)


def is_bond_slave(host: Host, name: str) -> bool:
    """Whether an interface is a part of a bond."""
    nic = host.nic(name)
    master = host.nic(nic.master) if nic and nic.master else None
    return master is not None and master.maker == "bond"


def _judge_port(host: Host, port: RdmaPort, chosen: Filter) -> Verdict:
    code, reason = (
        _excluded(chosen, port.device, port.name)
        or _link(port)
        or _access(port)
        or _addresses(host, port)
        or _usable(port.is_vf)
    )
    is_usable = code in _USABLE
    return Verdict(
        name=port.name,
        kind="rdma",
        code=code,
        reason=reason,
        remarks=_port_remarks(host, port) if is_usable else (),
        is_usable=is_usable,
    )


def _excluded(chosen: Filter, *names: str) -> Finding | None:
    reason = chosen.reason(names)
    return ("excluded-by-filter", reason) if reason else None


def _usable(is_vf: bool) -> Finding:
    if is_vf:
        return "vf", "usable; a virtual function, which shares its card's rate"
    return "ok", "usable"


def _link(port: RdmaPort) -> Finding | None:
    if not port.state:
        return "not-readable", "its state cannot be read"
    if port.state != "ACTIVE":
        physical = f", physically {port.phys_state}" if port.phys_state else ""
        return "down", f"its state is {port.state}{physical}"
    if port.link_layer not in ("Ethernet", "InfiniBand"):
        return "link-layer-unknown", f"its link layer is {port.link_layer or 'not told'!r}"
    # Source: include/rdma/ib_verbs.h, enum rdma_node_type; 1 CA, 4 RNIC; 7 is "unspecified".
    if port.node_type and port.node_type.split(":")[0] not in ("1", "4"):
        return "link-layer-unknown", f"it is no channel adapter: node type {port.node_type!r}"
    return None


def _access(port: RdmaPort) -> Finding | None:
    if not port.uverbs:
        return "no-uverbs", "no uverbs device belongs to it; is ib_uverbs loaded?"
    if port.uverbs_node == "missing":
        return (
            "no-uverbs",
            f"/dev/infiniband/{port.uverbs} is not there; was it given to the container?",
        )
    if port.uverbs_node == "denied":
        return "no-uverbs", f"/dev/infiniband/{port.uverbs} may not be opened"
    return None


def _addresses(host: Host, port: RdmaPort) -> Finding | None:
    # The top bit is full membership; two limited members cannot talk to each other.
    if port.pkeys and not any(_is_full_member(pkey) for pkey in port.pkeys):
        return "limited-pkey", f"only a limited member of its partition: {', '.join(port.pkeys)}"
    if not port.gids:
        return "no-gid", "it has no GID; has its interface an address?"
    nic = best_gid(host, port).nic
    if is_bond_slave(host, nic):
        return "bond-slave", f"its GIDs belong to {nic}, a part of {_master(host, nic)}"
    return None


def _is_full_member(pkey: str) -> bool:
    try:
        return bool(int(pkey, 16) & 0x8000)
    except ValueError:
        return False


def _master(host: Host, name: str) -> str:
    nic = host.nic(name)
    return nic.master if nic else ""


def _port_remarks(host: Host, port: RdmaPort) -> tuple[str, ...]:
    remarks = []
    best = best_gid(host, port)
    if port.link_layer == "Ethernet" and not is_here(host, best):
        owner = best.nic or "an interface that is not told"
        remarks.append(f"GID {best.index} belongs to {owner}, with no such address here")
    if port.link_layer == "Ethernet" and is_link_local(best):
        remarks.append("only link-local GIDs: reaches its own link alone")
    if port.uverbs_node == "unknown":
        remarks.append(f"whether /dev/infiniband/{port.uverbs} is there was not recorded")
    bonded = [nic for nic in port.nics if is_bond_slave(host, nic)]
    if bonded:
        remarks.append(f"a bond of {', '.join(bonded)}: one device, shared by both links")
    return tuple(remarks)


def _judge_nic(host: Host, nic: Nic, chosen: Filter) -> Verdict:
    code, reason = (
        _excluded(chosen, nic.name)
        or (None if nic.name in chosen.only else _purpose(nic))
        or _part_of(host, nic)
        or _carries(nic)
        or _has_address(nic)
        or _usable(nic.is_vf)
    )
    is_usable = code in _USABLE
    return Verdict(
        name=nic.name,
        kind="interface",
        code=code,
        reason=reason,
        remarks=_nic_remarks(nic) if is_usable else (),
        is_usable=is_usable,
    )


def _nic_remarks(nic: Nic) -> tuple[str, ...]:
    if nic.members:
        return (f"a bond of {', '.join(nic.members)}",)
    return (f"{nic.maker or 'virtual'}: no device stands behind it",) if nic.is_virtual else ()


def _purpose(nic: Nic) -> Finding | None:
    if nic.kind == "loopback":
        return "loopback", "reaches this host alone"
    for code, patterns, what in _SKIPPED:
        if any(fnmatchcase(nic.name, pattern) for pattern in patterns):
            return code, f"{what}; used only when it is named"
    if nic.maker == "tun":
        return "tun", "a tunnel; used only when it is named"
    return None


def _part_of(host: Host, nic: Nic) -> Finding | None:
    if not nic.master:
        return None
    if is_bond_slave(host, nic.name):
        return "bond-slave", f"a part of the bond {nic.master}, which has the address"
    return "bridge-port", f"a part of {nic.master}, which has the address"


def _carries(nic: Nic) -> Finding | None:
    if nic.is_up is False:
        return "down", "it is not set up"
    if nic.has_carrier is False:
        return "no-carrier", "it is set up, and has no carrier: is the cable in?"
    if not nic.operstate:
        return "not-readable", "its state cannot be read"
    if nic.operstate not in ("up", "unknown"):
        return "down", f"its state is {nic.operstate}"
    return None


def _has_address(nic: Nic) -> Finding | None:
    if not nic.addresses:
        return "no-address", "it has no address"
    if all(address.ip.is_link_local for address in nic.interfaces()):
        return "no-address", "it has only link-local addresses, which lead nowhere without a name"
    return None
