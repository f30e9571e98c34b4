"""`mooncake topo`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import typer

from mooncake_cli.flags import Json
from mooncake_cli.render import print_table
from mooncake_core.errors import ConfigError
from mooncake_core.topology import Host, read_host
from mooncake_core.units import format_size


def command(
    sysroot: Path = typer.Option(
        Path("/"), metavar="DIR", help="Read a recorded copy of /sys and /proc below DIR."
    ),
    as_json: bool = Json,
) -> None:
    """Show this host's NICs, RDMA devices, NUMA nodes and GPUs.

    From sysfs and procfs alone. What cannot be read is said, and is no error.
    """
    if not sysroot.is_dir():
        raise ConfigError(f"--sysroot:sysroot: {sysroot} is no folder")
    host = read_host(sysroot)
    if as_json:
        print(msgspec.json.encode(host).decode())
        return
    _print_network(host)
    _print_devices(host)
    for problem in host.problems:
        print(f"not read: {problem}", file=sys.stderr)


def _print_network(host: Host) -> None:
    rows = [
        (
            nic.name,
            f"{nic.kind}{' (virtual)' if nic.is_virtual else ''}",
            nic.operstate,
            "-" if nic.speed_mbit_per_s is None else f"{nic.speed_mbit_per_s} Mbit/s",
            _or_dash(nic.numa_node),
            nic.pci or "-",
            "\n".join(nic.addresses),
        )
        for nic in host.nics
    ]
    columns = ["interface", "kind", "state", "speed", "NUMA", "PCI", "addresses"]
    print_table(columns, rows, title="Network interfaces")
    if not host.rdma:
        print("RDMA devices: none\n")
        return
    ports = [
        (
            f"{port.device}/{port.port}",
            port.state,
            port.link_layer,
            port.rate,
            _or_dash(port.numa_node),
            "\n".join(f"{gid.index}: {gid.gid} {gid.kind} {gid.nic}" for gid in port.gids),
        )
        for port in host.rdma
    ]
    print_table(["port", "state", "link", "rate", "NUMA", "GIDs"], ports, title="RDMA devices")


def _print_devices(host: Host) -> None:
    nodes = [
        (
            str(node.node),
            node.cpus,
            "-" if node.memory_bytes is None else format_size(node.memory_bytes),
        )
        for node in host.numa
    ]
    print_table(["node", "CPUs", "memory"], nodes, title="NUMA nodes")
    if not host.gpus:
        print("GPUs: none\n")
        return
    gpus = [
        (
            gpu.pci,
            gpu.name or "-",
            gpu.vendor,
            gpu.device,
            gpu.driver or "-",
            _or_dash(gpu.numa_node),
        )
        for gpu in host.gpus
    ]
    print_table(["PCI", "name", "vendor", "device", "driver", "NUMA"], gpus, title="GPUs")


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
