"""What this host has for moving bytes: NICs, RDMA devices, NUMA nodes, GPUs."""

from mooncake_core.topology.host import Gid, Gpu, Host, Nic, NumaNode, RdmaPort
from mooncake_core.topology.read import read_host

__all__ = ["Gid", "Gpu", "Host", "Nic", "NumaNode", "RdmaPort", "read_host"]
