"""What this host has for moving bytes: NICs, RDMA devices, NUMA nodes, GPUs; and what is usable."""

from mooncake_core.topology.advertise import Advertised, advertise_address
from mooncake_core.topology.filters import Filter
from mooncake_core.topology.gids import Overrides, RankedGid, parse_overrides, rank_gids
from mooncake_core.topology.host import Gid, Gpu, Host, Limits, Nic, NumaNode, RdmaPort, Route
from mooncake_core.topology.matrix import Matrix, build_matrix, encode_matrix
from mooncake_core.topology.matrix_file import load_matrix
from mooncake_core.topology.nvml import name_gpus
from mooncake_core.topology.rails import Rail
from mooncake_core.topology.read import read_host
from mooncake_core.topology.report import Report, Wishes, describe_host, unmet
from mooncake_core.topology.usable import (
    known_addresses,
    preferred_addresses,
    resolve_addresses,
    usable_addresses,
)
from mooncake_core.topology.verdicts import Verdict, judge, rdma_reasons

__all__ = [
    "Advertised",
    "Filter",
    "Gid",
    "Gpu",
    "Host",
    "Limits",
    "Matrix",
    "Nic",
    "NumaNode",
    "Overrides",
    "Rail",
    "RankedGid",
    "RdmaPort",
    "Report",
    "Route",
    "Verdict",
    "Wishes",
    "advertise_address",
    "build_matrix",
    "describe_host",
    "encode_matrix",
    "judge",
    "known_addresses",
    "load_matrix",
    "name_gpus",
    "parse_overrides",
    "preferred_addresses",
    "rank_gids",
    "rdma_reasons",
    "read_host",
    "resolve_addresses",
    "unmet",
    "usable_addresses",
]
