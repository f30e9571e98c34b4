"""Recorded hosts, built: a tree of sysfs, procfs and /dev with just the files that matter."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mooncake_core.topology import Host, read_host

UNSET = "0000:0000:0000:0000:0000:0000:0000:0000"
V1, V2 = "IB/RoCE v1", "RoCE v2"


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def gid_text(address: str) -> str:
    """As sysfs writes it; an IPv4 address is mapped."""
    ip = ipaddress.ip_address(address)
    return ipaddress.IPv6Address(f"::ffff:{ip}" if ip.version == 4 else str(ip)).exploded


class Recorded:
    """A host under construction. Whatever is not said is as on a healthy host."""

    def __init__(self, root: Path, *, nodes: int = 1) -> None:
        self.root = root
        self._local: list[str] = []
        self._routes = ["Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"]
        self._inet6: list[str] = []
        for node in range(nodes):
            write(root, {f"sys/devices/system/node/node{node}/cpulist": str(node)})
        (root / "dev/infiniband").mkdir(parents=True)
        self.nic("lo", "127.0.0.1/8", files={"type": "772", "operstate": "unknown"})

    def pci(self, path: str, files: Mapping[str, str]) -> Path:
        """Make a device at the end of "host bridge/bridge/.../function"."""
        folder = self.root / "sys/devices" / path
        write(folder, files)
        link = self.root / "sys/bus/pci/devices" / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder, link.parent))
        return folder

    def nic(
        self,
        name: str,
        *addresses: str,
        device: Path | None = None,
        master: str = "",
        files: Mapping[str, str] | None = None,
    ) -> Recorded:
        folder = self.root / "sys/class/net" / name
        usual = {"type": "1", "operstate": "up", "flags": "0x1003", "carrier": "1", "mtu": "1500"}
        write(folder, {**usual, **(files or {})})
        if device is not None:
            (folder / "device").symlink_to(os.path.relpath(device, folder))
        if master:
            (folder / "master").symlink_to(f"../{master}")
        for address in addresses:
            self._configure(name, ipaddress.ip_interface(address))
        return self

    def card(self, name: str, *addresses: str, at: str = "", numa: int = 0) -> Path:
        """Make a NIC on a PCI card, and return its device."""
        path = at or f"pci0000:00/0000:{len(os.listdir(self.root / 'sys/class/net')):02x}:00.0"
        device = self.pci(path, {"numa_node": str(numa)})
        self.nic(name, *addresses, device=device)
        return device

    def port(
        self,
        device: str,
        gids: Mapping[int, tuple[str, str, str]] | None = None,
        *,
        at: Path | None = None,
        files: Mapping[str, str] | None = None,
        pkeys: Sequence[str] = ("0xffff",),
        verbs: bool = True,
    ) -> Recorded:
        """Add a device with one port; `gids` are index -> (address, kind, interface)."""
        number = device.rpartition("_")[2]
        base = f"sys/class/infiniband/{device}"
        port = f"{base}/ports/1"
        usual = {
            f"{base}/node_type": "1: CA",
            f"{port}/state": "4: ACTIVE",
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/link_layer": "Ethernet",
            f"{port}/rate": "400 Gb/sec (4X NDR)",
            f"{port}/gids/0": UNSET,
        }
        for index, (address, kind, nic) in (gids or {}).items():
            usual[f"{port}/gids/{index}"] = gid_text(address)
            usual[f"{port}/gid_attrs/types/{index}"] = kind
            usual[f"{port}/gid_attrs/ndevs/{index}"] = nic
        for index, pkey in enumerate(pkeys):
            usual[f"{port}/pkeys/{index}"] = pkey
        if verbs:
            usual[f"sys/class/infiniband_verbs/uverbs{number}/ibdev"] = device
            usual[f"dev/infiniband/uverbs{number}"] = ""
        write(
            self.root, {**usual, **{f"{port}/{key}": text for key, text in (files or {}).items()}}
        )
        if at is not None:
            link = self.root / base / "device"
            link.symlink_to(os.path.relpath(at, link.parent))
        return self

    def gpu(self, at: str, *, numa: int = 0, vendor: str = "0x10de") -> Recorded:
        self.pci(at, {"class": "0x030200", "vendor": vendor, "numa_node": str(numa)})
        return self

    def route(self, nic: str, network: str, gateway: str = "0.0.0.0", metric: int = 0) -> Recorded:
        target = ipaddress.IPv4Network(network)
        fields = (_hex(target.network_address), _hex(ipaddress.IPv4Address(gateway)))
        mask = _hex(target.netmask)
        self._routes.append(f"{nic} {fields[0]} {fields[1]} 0003 0 0 {metric} {mask} 0 0 0")
        return self

    def read(self) -> Host:
        trie = "".join(f"  |-- {address}\n   /32 host LOCAL\n" for address in self._local)
        write(
            self.root,
            {
                "proc/net/route": "\n".join(self._routes),
                "proc/net/fib_trie": trie,
                "proc/net/if_inet6": "\n".join(self._inet6),
            },
        )
        return read_host(self.root)

    def _configure(
        self, nic: str, interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface
    ) -> None:
        if isinstance(interface, ipaddress.IPv6Interface):
            prefix = interface.network.prefixlen
            self._inet6.append(f"{interface.ip.packed.hex()} 02 {prefix:02x} 00 80 {nic}")
            return
        self._local.append(str(interface.ip))
        if not interface.ip.is_loopback:
            self.route(nic, str(interface.network))


def _hex(address: ipaddress.IPv4Address) -> str:
    return address.packed[::-1].hex().upper()
