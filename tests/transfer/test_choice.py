"""What `[transfer]` says of the network is what the engine does, or an error that says why."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.choice import choose
from tests.topology.trees import Recorded


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Two Ethernet interfaces, one of them down, a container's bridge, and two RDMA ports."""
    net = "sys/class/net"
    write(
        tmp_path,
        {
            f"{net}/eth0/type": "1",
            f"{net}/eth0/operstate": "up",
            f"{net}/eth0/device/uevent": "PCI_SLOT_NAME=0000:01:00.0\n",
            f"{net}/eth1/type": "1",
            f"{net}/eth1/operstate": "down",
            f"{net}/eth1/device/uevent": "PCI_SLOT_NAME=0000:02:00.0\n",
            f"{net}/docker0/type": "1",
            f"{net}/docker0/operstate": "up",
            f"{net}/lo/type": "772",
            "proc/net/if_inet6": (
                "fd000000000000000000000000000005 02 40 00 80     eth0\n"
                "fe800000000000000000000000000006 03 40 20 80     eth1\n"
                "fd000000000000000000000000000007 04 40 00 80 docker0\n"
                "00000000000000000000000000000001 01 80 10 80       lo\n"
            ),
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
        },
    )
    return tmp_path


def test_rdma_where_it_cannot_be_used_is_an_error_that_says_why_for_each_device(host: Path) -> None:
    with pytest.raises(ConfigError, match=r"transfer\.protocol: .*mlx5_0/1: .*mlx5_1/1: down"):
        choose(TransferConfig(protocol="rdma"), host)
    with pytest.raises(ConfigError, match=r"transfer\.protocol: rdma .*no RDMA"):
        TransferEngine(TransferConfig(protocol="rdma"))


def test_auto_says_what_it_took_and_why(host: Path, caplog: pytest.LogCaptureFixture) -> None:
    choice = choose(TransferConfig(), host)
    assert choice.protocol == "tcp"
    assert "mlx5_0" in choice.reason and "no RDMA transport" in choice.reason
    with caplog.at_level(logging.INFO):
        engine = TransferEngine(TransferConfig())
    engine.close()
    assert engine.choice.reason in caplog.text and engine.endpoint in caplog.text


def test_tcp_touches_no_rdma_device(host: Path) -> None:
    opened: list[str] = []
    is_on = True

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if is_on and event in {"open", "os.listdir", "os.scandir"}:
            opened.append(str(args[0]))

    sys.addaudithook(hear)
    choose(TransferConfig(protocol="tcp", addresses=("eth0",)), host)
    is_on = False
    assert opened
    assert not [path for path in opened if "infiniband" in path]


def test_interfaces_stand_for_their_addresses(host: Path) -> None:
    def addresses(*entries: str, listen: str = "127.0.0.1:0") -> tuple[str, ...]:
        return choose(TransferConfig(addresses=entries, listen=listen), host).addresses

    assert addresses("eth0", "fd00::7", "lo") == ("fd00::5", "fd00::7", "::1")
    assert addresses("eth1") == ("fe80::6%eth1",)
    assert addresses("auto") == ("fd00::5",)
    assert addresses("eth0", listen="[fd00::5]:0") == ()
    with pytest.raises(ConfigError, match=r"transfer\.addresses: 'eth9' .*did you mean 'eth1'"):
        addresses("eth9")


def test_a_topology_file_says_which_addresses_are_near_which_memory(
    host: Path, tmp_path: Path
) -> None:
    file = tmp_path / "matrix.json"
    file.write_text(json.dumps({"cpu:0": [["eth0"], ["eth1"]], "cuda:0": [["fd00::7"], []]}))
    config = TransferConfig(topology=str(file))
    assert choose(config, host).preferred == {"cpu:0": ("fd00::5",), "cuda:0": ("fd00::7",)}
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"transfer\.topology: .*matrix\.json"):
        choose(config, host)


def test_without_a_file_addresses_are_near_the_memory_of_their_numa_node(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    for index in range(4):
        recorded.card(f"eth{index}", f"10.{index}.0.2/16", numa=index // 2)
    recorded.read()

    def near(*addresses: str) -> dict[str, tuple[str, ...]]:
        config = TransferConfig(listen="10.0.0.2:0", addresses=addresses, protocol="tcp")
        return choose(config, tmp_path).preferred

    assert near("eth1", "eth2") == {"cpu:0": ("10.0.0.2", "10.1.0.2"), "cpu:1": ("10.2.0.2",)}
    assert near("eth2") == {"cpu:0": ("10.0.0.2",), "cpu:1": ("10.2.0.2",)}
    assert near("eth1") == {} == near()  # all are at one node
    assert near("lo") == {"cpu:0": ("10.0.0.2",)}


def test_an_address_that_is_not_this_hosts_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"transfer\.listen: .*192\.0\.2\.1"):
        TransferEngine(TransferConfig(listen="192.0.2.1:0"))
