"""The inventory of a host from its sysfs and procfs, or from a recorded copy of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from mooncake_core.topology.addresses import read_addresses
from mooncake_core.topology.devices import read_gpus, read_numa
from mooncake_core.topology.host import Gpu, Host
from mooncake_core.topology.limits import read_limits
from mooncake_core.topology.network import read_nics
from mooncake_core.topology.nvml import gpu_names
from mooncake_core.topology.rdma import CLASS, gid_owners, read_rdma
from mooncake_core.topology.routes import read_routes
from mooncake_core.topology.tree import Tree


def read_host(root: Path = Path("/")) -> Host:
    """Return what there is below `root`; never fails, what could not be read is in `problems`.

    A recorded tree is not asked for anything that the machine itself has.
    """
    tree = Tree(root)
    names = gpu_names() if tree.is_live else {}
    routes, rdma = read_routes(tree), read_rdma(tree)
    return Host(
        nics=read_nics(tree, read_addresses(tree, routes, gid_owners(rdma))),
        routes=routes,
        rdma=rdma,
        has_rdma_class=tree.has(CLASS),
        numa=read_numa(tree),
        gpus=tuple(_named(gpu, names) for gpu in read_gpus(tree)),
        limits=read_limits(tree),
        problems=tuple(dict.fromkeys(tree.problems)),
    )


def _named(gpu: Gpu, names: Mapping[str, str]) -> Gpu:
    return msgspec.structs.replace(gpu, name=names.get(gpu.pci, ""))
