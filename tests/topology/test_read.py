"""The inventory of recorded hosts."""

from pathlib import Path

import pytest

from mooncake_core.topology import Gid, read_host
from tests.topology.trees import write

NIC = "sys/class/net/eth0"
NETWORK = {
    f"{NIC}/type": "1\n",
    f"{NIC}/operstate": "up\n",
    f"{NIC}/speed": "100000\n",
    f"{NIC}/mtu": "9000\n",
    f"{NIC}/device/numa_node": "1\n",
    f"{NIC}/device/uevent": "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:c1:00.0\n",
    "sys/class/net/lo/type": "772\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "proc/net/route": (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
    ),
    "proc/net/fib_trie": (
        "Local:\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 192.0.2.2\n        /32 host LOCAL\n"
        "     |-- 192.0.2.255\n        /32 link BROADCAST\n"
    ),
    "proc/net/if_inet6": "fd000000000000000000000000000002 04 40 00 82     eth0\n",
}


def test_a_nic_is_described_with_its_addresses(tmp_path: Path) -> None:
    host = read_host(write(tmp_path, NETWORK))
    nic, loopback = host.nics
    assert (nic.name, nic.kind, nic.operstate, nic.is_virtual) == ("eth0", "ethernet", "up", False)
    assert (nic.speed_mbit_per_s, nic.mtu, nic.numa_node, nic.pci) == (
        100_000,
        9000,
        1,
        "0000:c1:00.0",
    )
    assert nic.addresses == ("192.0.2.2/24", "fd00::2/64")
    assert (loopback.kind, loopback.is_virtual) == ("loopback", True)
    assert loopback.addresses == ("127.0.0.1/8",)


def test_rdma_ports_have_the_gids_that_are_set(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    host = read_host(
        write(
            tmp_path,
            {
                f"{port}/state": "4: ACTIVE\n",
                f"{port}/link_layer": "Ethernet\n",
                f"{port}/rate": "400 Gb/sec (4X NDR)\n",
                f"{port}/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000\n",
                f"{port}/gids/3": "0000:0000:0000:0000:0000:ffff:c000:0202\n",
                f"{port}/gids/10": "fe80:0000:0000:0000:0000:0000:0000:0001\n",
                f"{port}/gid_attrs/types/3": "RoCE v2\n",
                f"{port}/gid_attrs/ndevs/3": "eth0\n",
                "sys/class/infiniband/mlx5_0/device/numa_node": "-1\n",
            },
        )
    )
    (found,) = host.rdma
    assert (found.device, found.port, found.state, found.link_layer) == (
        "mlx5_0",
        1,
        "ACTIVE",
        "Ethernet",
    )
    assert found.numa_node is None
    assert [gid.index for gid in found.gids] == [3, 10]
    assert found.gids[0] == Gid(
        index=3, gid="0000:0000:0000:0000:0000:ffff:c000:0202", kind="RoCE v2", nic="eth0"
    )


def test_numa_nodes_and_gpus_are_listed(tmp_path: Path) -> None:
    nodes, gpu = "sys/devices/system/node", "sys/bus/pci/devices/0000:17:00.0"
    host = read_host(
        write(
            tmp_path,
            {
                f"{nodes}/node0/cpulist": "0-31\n",
                f"{nodes}/node0/meminfo": "Node 0 MemTotal:  1024 kB\n",
                f"{nodes}/node10/cpulist": "32-63\n",
                f"{gpu}/class": "0x030200\n",
                f"{gpu}/vendor": "0x10de\n",
                f"{gpu}/device": "0x2330\n",
                f"{gpu}/numa_node": "0\n",
                "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
            },
        )
    )
    assert [(node.node, node.cpus, node.memory_bytes) for node in host.numa] == [
        (0, "0-31", 1 << 20),
        (10, "32-63", None),
    ]
    (found,) = host.gpus
    assert (found.pci, found.vendor, found.device, found.numa_node) == (
        *("0000:17:00.0", "10de (NVIDIA)"),
        *("2330", 0),
    )


def test_an_empty_tree_is_no_error_and_says_what_it_lacks(tmp_path: Path) -> None:
    host = read_host(tmp_path)
    assert host.nics == host.rdma == host.gpus == ()
    assert len(host.numa) == 1
    assert len(host.problems) == 2


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (f"{NIC}/mtu", "many\n", "'many' is no number"),
        ("proc/net/if_inet6", "garbage\n", "is no address"),
        ("proc/net/route", "Iface\neth0\tXY\n", "is no route"),
        ("proc/net/route", "Iface\n", "whose address 192.0.2.2"),
    ],
)
def test_garbage_is_told_and_the_rest_is_read(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    host = read_host(write(tmp_path, {**NETWORK, name: text}))
    assert [nic.name for nic in host.nics] == ["eth0", "lo"]
    assert any(problem in each for each in host.problems)


def test_an_unset_numa_node_and_speed_are_none(tmp_path: Path) -> None:
    files = {**NETWORK, f"{NIC}/device/numa_node": "-1\n", f"{NIC}/speed": "-1\n"}
    (nic, _) = read_host(write(tmp_path, files)).nics
    assert nic.numa_node is None and nic.speed_mbit_per_s is None


def test_this_host_can_be_read() -> None:
    assert "lo" in [nic.name for nic in read_host().nics]
