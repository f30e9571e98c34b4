"""The tables of `mooncake topo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooncake_cli.render import print_table
from mooncake_core.topology import Advertised, Host, Limits, Nic, RdmaPort, Report
from mooncake_core.units import format_size

if TYPE_CHECKING:
    from mooncake_core.topology.check import CheckedPath


def print_host(host: Host, report: Report, advertised: Advertised | None) -> None:
    """Print everything that there is, and what follows from it."""
    _print_nics(host)
    _print_ports(host)
    _print_verdicts(report)
    _print_gids(report)
    _print_memory(host)
    _print_gpus(host)
    _print_rails(report)
    _print_matrix(report)
    _print_limits(host.limits)
    if advertised is not None:
        print(f"Others are told {advertised.address} ({advertised.nic}): {advertised.reason}\n")


def print_paths(paths: Sequence[CheckedPath]) -> None:
    """Print what became of each pair of addresses."""
    rows = [
        (
            path.local or "(any)",
            path.remote,
            path.error or "ok",
            _rate(path.rate_bytes_per_s),
            _micros(path.latency_s),
            _micros(path.connect_s),
        )
        for path in paths
    ]
    columns = ["from", "to", "result", "echo of 1 MiB", "latency", "connected in"]
    print_table(columns, rows, title="Paths to the engine")


def _rate(rate_bytes_per_s: float | None) -> str:
    return "-" if rate_bytes_per_s is None else f"{rate_bytes_per_s / 1e9:.3f} GB/s"


def _micros(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.0f} µs"


def _print_nics(host: Host) -> None:
    rows = [
        (
            nic.name,
            _kind(nic),
            nic.operstate or "-",
            "-" if nic.speed_mbit_per_s is None else f"{nic.speed_mbit_per_s} Mbit/s",
            _or_dash(nic.mtu),
            _or_dash(nic.numa_node),
            nic.pci or "-",
            "\n".join(nic.addresses),
        )
        for nic in host.nics
    ]
    columns = ["interface", "kind", "state", "speed", "MTU", "NUMA", "PCI", "addresses"]
    print_table(columns, rows, title="Network interfaces")


def _kind(nic: Nic) -> str:
    words = [nic.maker or nic.kind, *(["virtual"] if nic.is_virtual and not nic.maker else [])]
    return " ".join([*words, *([f"of {' '.join(nic.members)}"] if nic.members else [])])


def _print_ports(host: Host) -> None:
    if not host.rdma:
        where = "" if host.has_rdma_class else ": there is no /sys/class/infiniband"
        print(f"RDMA devices: none{where}\n")
        return
    rows = [
        (
            port.name,
            " ".join(filter(None, (port.state, port.phys_state))) or "-",
            port.link_layer or "-",
            port.rate or "-",
            _or_dash(port.numa_node),
            port.pci or "-",
            _node(port),
        )
        for port in host.rdma
    ]
    columns = ["port", "state", "link", "rate", "NUMA", "PCI", "device node"]
    print_table(columns, rows, title="RDMA devices")


def _node(port: RdmaPort) -> str:
    return f"{port.uverbs} ({port.uverbs_node})" if port.uverbs else "-"


def _print_verdicts(report: Report) -> None:
    rows = [
        (
            verdict.name,
            "yes" if verdict.is_usable else "no",
            verdict.code,
            "\n".join([verdict.reason, *verdict.remarks]),
        )
        for verdict in report.verdicts
    ]
    if rows:
        print_table(["device", "used", "verdict", "why"], rows, title="Verdicts")


def _print_gids(report: Report) -> None:
    rows = [
        (
            gid.port if rank == 0 else "",
            "used" if rank == 0 else "",
            str(gid.index),
            gid.address,
            gid.nic or "-",
            "; ".join(gid.reasons),
        )
        for gids in report.gids.values()
        for rank, gid in enumerate(gids)
    ]
    if rows:
        print_table(
            ["port", "", "index", "GID", "interface", "why"], rows, title="GIDs, best first"
        )


def _print_memory(host: Host) -> None:
    rows = [
        (
            str(node.node),
            node.cpus,
            "-" if node.memory_bytes is None else format_size(node.memory_bytes),
        )
        for node in host.numa
    ]
    print_table(["node", "CPUs", "memory"], rows, title="NUMA nodes")


def _print_gpus(host: Host) -> None:
    if not host.gpus:
        print("GPUs: none\n")
        return
    rows = [
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
    print_table(["PCI", "name", "vendor", "device", "driver", "NUMA"], rows, title="GPUs")


def _print_rails(report: Report) -> None:
    rows = [(rail.network, ", ".join(rail.nics)) for rail in report.rails]
    if rows:
        print_table(["network", "NICs that reach each other"], rows, title="Rails")


def _print_matrix(report: Report) -> None:
    nics = list(dict.fromkeys(nic for row in report.distances.values() for nic in row))
    rows = [
        (location, *(report.distances.get(location, {}).get(nic, "-") for nic in nics), *near)
        for location, near in _near(report)
    ]
    if not rows:
        return
    print_table(["memory", *nics, "preferred", "then"], rows, title="NICs near memory")
    if any(location.startswith("cuda:") for location in report.matrix):
        print("cuda:N counts GPUs by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID does.\n")
    if report.matrix_file:
        print(f"The preferences of {report.matrix_file} are used.\n")


def _near(report: Report) -> Sequence[tuple[str, tuple[str, str]]]:
    return [
        (location, (", ".join(preferred), ", ".join(secondary)))
        for location, (preferred, secondary) in report.matrix.items()
    ]


def _print_limits(limits: Limits) -> None:
    rows = [
        ("pinned memory", _size(limits.memlock)),
        ("memory of the cgroup", _size(limits.cgroup_memory)),
        ("CPUs of the cgroup", limits.cgroup_cpus or "-"),
        ("/dev/shm", "-" if limits.shm_bytes is None else format_size(limits.shm_bytes)),
        ("ports of connections", limits.local_ports or "-"),
    ]
    print_table(["limit", ""], rows, title="Limits of this process")


def _size(text: str) -> str:
    return format_size(int(text)) if text.isdigit() else text or "-"


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
