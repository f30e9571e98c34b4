"""Network interfaces and their addresses, from /sys/class/net and /proc/net."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from mooncake_core.topology.host import Nic
from mooncake_core.topology.tree import Tree

# Source: include/uapi/linux/if_arp.h.
_KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}


def read_nics(tree: Tree) -> tuple[Nic, ...]:
    """Return every interface, in the order of their names."""
    names = tree.names("sys/class/net")
    if not names:
        tree.problems.append("/sys/class/net: no network interface is to be seen")
    addresses = _addresses(tree)
    return tuple(_nic(tree, name, tuple(addresses.get(name, ()))) for name in names)


def _nic(tree: Tree, name: str, addresses: tuple[str, ...]) -> Nic:
    base = f"sys/class/net/{name}"
    kind = tree.number(f"{base}/type")
    speed = tree.number(f"{base}/speed")
    return Nic(
        name=name,
        kind="" if kind is None else _KINDS.get(kind, f"type {kind}"),
        operstate=tree.text(f"{base}/operstate") or "",
        speed_mbit_per_s=speed or None,
        mtu=tree.number(f"{base}/mtu"),
        is_virtual=not tree.has(f"{base}/device"),
        numa_node=tree.number(f"{base}/device/numa_node"),
        pci=_pci(tree, base),
        master=tree.link(f"{base}/master"),
        addresses=addresses,
    )


def _pci(tree: Tree, base: str) -> str:
    uevent = tree.text(f"{base}/device/uevent") or ""
    match = re.search(r"^PCI_SLOT_NAME=(\S+)$", uevent, re.MULTILINE)
    if match:
        return match.group(1)
    # virtio: the interface's device is a child of the PCI function.
    try:
        path = (tree.root / base / "device").resolve()
    except OSError:
        return ""
    parts = [
        part
        for part in path.parts
        if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part)
    ]
    return parts[-1] if parts else ""


def _addresses(tree: Tree) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, address in [*_ipv4(tree), *_ipv6(tree)]:
        found.setdefault(name, []).append(address)
    return found


def _ipv4(tree: Tree) -> Iterator[tuple[str, str]]:
    """fib_trie has this host's addresses, route the interface of each connected network."""
    networks = list(_connected(tree))
    for address in _local_ipv4(tree):
        if address.is_loopback:
            yield "lo", f"{address}/8"
            continue
        within = [(name, network) for name, network in networks if address in network]
        if not within:
            tree.problems.append(f"/proc/net/route: no route says whose address {address} is")
            continue
        name, network = max(within, key=lambda each: each[1].prefixlen)
        yield name, f"{address}/{network.prefixlen}"


def _local_ipv4(tree: Tree) -> list[ipaddress.IPv4Address]:
    text = tree.text("proc/net/fib_trie") or ""
    local = re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", text)
    # The main and the local table show the same ones.
    return [ipaddress.IPv4Address(address) for address in dict.fromkeys(local)]


def _connected(tree: Tree) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    for line in (tree.text("proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        try:
            name, target, gateway, mask = fields[0], fields[1], fields[2], fields[7]
            network = f"{_little_endian(target)}/{_little_endian(mask)}"
            if int(gateway, 16) == 0 and int(mask, 16) != 0:
                yield name, ipaddress.IPv4Network(network)
        except (IndexError, ValueError):
            tree.problems.append(f"/proc/net/route: {line[:60]!r} is no route")


def _little_endian(hexadecimal: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bytes.fromhex(hexadecimal)[::-1])


def _ipv6(tree: Tree) -> Iterator[tuple[str, str]]:
    for line in (tree.text("proc/net/if_inet6") or "").splitlines():
        try:
            address, _, prefix, _, _, name = line.split()
            yield name, f"{ipaddress.IPv6Address(bytes.fromhex(address))}/{int(prefix, 16)}"
        except ValueError:
            tree.problems.append(f"/proc/net/if_inet6: {line[:60]!r} is no address")
