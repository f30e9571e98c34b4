"""Whatever a tree holds, it is described and never an error."""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Wishes,
    advertise_address,
    build_matrix,
    describe_host,
    preferred_addresses,
    read_host,
)

NIC, PORT = "sys/class/net/eth0", "sys/class/infiniband/mlx5_0/ports/1"
PLACES = [
    *(f"{NIC}/{name}" for name in ("type", "operstate", "flags", "carrier", "speed", "mtu")),
    *(f"{NIC}/{name}" for name in ("uevent", "device/uevent", "device/numa_node", "device/physfn")),
    *(f"{NIC}/{name}" for name in ("bonding/slaves", "bonding/mode", "bridge", "tun_flags")),
    *(f"sys/class/net/{name}" for name in ("bonding_masters", "lo", "veth0/type")),
    *(f"{PORT}/{name}" for name in ("state", "phys_state", "link_layer", "rate", "gids/0")),
    *(f"{PORT}/{name}" for name in ("gids/1", "gids/x", "gid_attrs/types/0", "gid_attrs/ndevs/1")),
    *(f"{PORT}/{name}" for name in ("pkeys/0", "pkeys/1", "../2", "../²/state", "../../node_type")),
    *(f"sys/class/infiniband/mlx5_1{name}" for name in ("", "/ports", "/device/numa_node")),
    *("sys/class/infiniband_verbs/uverbs0/ibdev", "sys/class/infiniband_verbs/abi_version"),
    *("dev", "dev/infiniband", "dev/infiniband/uverbs0"),
    *("sys/devices/system/node/node0/meminfo", "sys/devices/system/node/node1"),
    *(f"sys/bus/pci/devices/0000:01:00.0/{name}" for name in ("class", "vendor", "numa_node")),
    *(f"proc/net/{name}" for name in ("route", "fib_trie", "if_inet6", "ipv6_route")),
    *(f"proc/self/{name}" for name in ("limits", "cgroup", "mounts")),
    *("proc/meminfo", "proc/sys/net/ipv4/ip_local_port_range", "sys/fs/cgroup/memory.max"),
]
SENSIBLE = [
    *("4: ACTIVE", "Ethernet", "InfiniBand", "up", "1", "32", "772", "-1", "0x1003", "0x7fff"),
    *("fe80:0000:0000:0000:0000:0000:0000:0001", "0000:0000:0000:0000:0000:ffff:0a00:0002"),
    *("RoCE v2", "IB/RoCE v1", "eth0", "lo", "1: CA", "mlx5_0", "0x030200", "0x10de", "999999" * 9),
    *("PCI_SLOT_NAME=0000:01:00.0", "DEVTYPE=bond", "MemTotal: 99 kB", "max", "1 2 3"),
    "Iface\neth0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\neth0 00000000 0100000A 0003 0 0 0 0",
    "  |-- 10.0.0.2\n   /32 host LOCAL\n  |-- 999.0.0.2\n   /32 host LOCAL\n",
    "fd000000000000000000000000000002 04 40 00 82 eth0\nfd00 04 ff 00 82 eth0",
    f"{'0' * 32} 00 {'0' * 32} 00 fd00{'0' * 27}1 00000400 00000003 00000000 00000003 eth0",
    "Max locked memory  8388608  8388608  bytes",
    "4:memory:/a\n0::/../..",
    "tmpfs /dev/shm tmpfs rw,size=64k 0 0",
]
CONTENTS = st.one_of(
    st.sampled_from([text.encode() for text in SENSIBLE]),
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
)
KINDS = st.sampled_from(["file", "file", "file", "file", "folder", "loop", "astray"])


def lay(root: Path, name: str, kind: str, content: bytes) -> None:
    """Put something there, unless something else is in the way."""
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind == "file":
            path.write_bytes(content)
        else:
            path.symlink_to(path.name if kind == "loop" else "/nowhere/at/all")
    except OSError:
        return


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(PLACES), st.tuples(KINDS, CONTENTS), min_size=5))
def test_no_tree_is_an_error(tree: dict[str, tuple[str, bytes]]) -> None:
    with TemporaryDirectory() as folder:
        for name, (kind, content) in tree.items():
            lay(Path(folder), name, kind, content)
        host = read_host(Path(folder))
    report = describe_host(host, Wishes(peer="10.0.0.9"))
    assert len(report.verdicts) == len(host.nics) + len(host.rdma)
    assert all(verdict.reason for verdict in report.verdicts)
    preferred_addresses(host, build_matrix(host))
    msgspec.json.encode([host, report])
    try:
        assert advertise_address(host, "10.0.0.9").address
    except ConfigError as error:
        assert "no interface" in str(error)
