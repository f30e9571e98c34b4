"""Which NICs to prefer for which memory: worked out from distances, or read from a file.

    {"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cuda:0": [["mlx5_1"], ["mlx5_0"]]}

A location, then the NICs that are nearest to it, then the others, which are used when those are
slow or gone. The form is that of the paper's Figure 4. cpu:N is a NUMA node. cuda:N counts GPUs by
their PCI address, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mooncake_core.topology.distance import ORDER, Device, Distance, between, to_node
from mooncake_core.topology.filters import EVERYTHING, Filter
from mooncake_core.topology.host import Gpu, Host
from mooncake_core.topology.verdicts import usable_nics, usable_ports

Names = tuple[str, ...]
Matrix = Mapping[str, tuple[Names, Names]]
"""Location -> (preferred, secondary) names of NICs."""


def build_matrix(host: Host, chosen: Filter = EVERYTHING) -> Matrix:
    """Return the matrix of the usable RDMA devices; of network interfaces where there is none."""
    distances = distance_matrix(host, carriers(host, chosen))
    return {location: _split(row) for location, row in distances.items()}


def distance_matrix(
    host: Host, devices: Mapping[str, Device]
) -> Mapping[str, Mapping[str, Distance]]:
    """Return how far each device is from each location."""
    rows: dict[str, dict[str, Distance]] = {}
    for node in host.numa:
        at = node.node
        rows[f"cpu:{at}"] = {name: to_node(host, nic, at) for name, nic in devices.items()}
    for index, gpu in enumerate(numbered_gpus(host)):
        rows[f"cuda:{index}"] = {name: between(host, gpu, nic) for name, nic in devices.items()}
    return rows


def carriers(host: Host, chosen: Filter = EVERYTHING) -> dict[str, Device]:
    """Return the usable RDMA devices, or where there is none, the usable network interfaces."""
    ports = usable_ports(host, chosen)
    if ports:
        return {port.device: port for port in ports}
    return {nic.name: nic for nic in usable_nics(host, chosen)}


def numbered_gpus(host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs that compute, in the order of cuda:N; a server's screen adapter is none."""
    for maker in ("10de", "1002"):
        gpus = sorted((gpu for gpu in host.gpus if gpu.vendor.startswith(maker)), key=_pci_order)
        if gpus:
            return tuple(gpus)
    return ()


def encode_matrix(matrix: Matrix) -> str:
    """Return a matrix as JSON, one location a line."""
    rows = (f"  {_json(location)}: {_json(row)}" for location, row in matrix.items())
    return "{\n" + ",\n".join(rows) + "\n}" if matrix else "{}"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _pci_order(gpu: Gpu) -> tuple[int, str]:
    """A domain may have more digits than another."""
    return len(gpu.pci), gpu.pci


def _split(row: Mapping[str, Distance]) -> tuple[Names, Names]:
    best = min(row.values(), key=ORDER.index, default="SYS")
    near = tuple(name for name, distance in row.items() if distance == best)
    return near, tuple(name for name in row if name not in near)
