"""The inventory of a host from its sysfs and procfs, or from a recorded copy of them."""

from __future__ import annotations

from pathlib import Path

from mooncake_core.topology.addresses import read_addresses
from mooncake_core.topology.devices import read_gpus, read_numa
from mooncake_core.topology.host import Host
from mooncake_core.topology.limits import read_limits
from mooncake_core.topology.network import read_nics
from mooncake_core.topology.rdma import CLASS, gid_owners, read_rdma
from mooncake_core.topology.routes import read_routes
from mooncake_core.topology.tree import Tree


def read_host(root: Path = Path("/"), *, rdma: bool = True) -> Host:
    """Return what there is below `root`; never fails, what could not be read is in `problems`.

    Args:
        root: of the machine itself, or of a recorded tree, which is not asked for anything that
            only the machine has.
        rdma: False: RDMA devices are not looked at, and none is told.
    """
    tree = Tree(root)
    routes, ports = read_routes(tree), read_rdma(tree) if rdma else ()
    return Host(
        nics=read_nics(tree, read_addresses(tree, routes, gid_owners(ports))),
        routes=routes,
        rdma=ports,
        has_rdma_class=rdma and tree.has(CLASS),
        numa=read_numa(tree),
        gpus=read_gpus(tree),
        limits=read_limits(tree),
        problems=tuple(dict.fromkeys(tree.problems)),
    )
