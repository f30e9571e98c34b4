"""Distances, preferences of memory, rails."""

from pathlib import Path

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Host,
    Wishes,
    build_matrix,
    describe_host,
    encode_matrix,
    load_matrix,
    preferred_addresses,
    unmet,
)
from tests.topology.trees import V2, Recorded

# Two sockets, each with two switches of two GPUs and two cards, as in eight-GPU servers.
SWITCHES = {
    "pci0000:10/0000:10:01.0/0000:11:00.0": 0,
    "pci0000:20/0000:20:01.0/0000:21:00.0": 0,
    "pci0000:80/0000:80:01.0/0000:81:00.0": 1,
    "pci0000:90/0000:90:01.0/0000:91:00.0": 1,
}


def server(root: Path) -> Recorded:
    """GPU and card i (0 to 7) hang on the switch i // 2."""
    recorded = Recorded(root, nodes=2)
    for index in range(8):
        switch, numa = list(SWITCHES.items())[index // 2]
        bus = int(switch[-7:-5], 16) + 1 + 2 * (index % 2)
        below = f"{switch}/{switch[-12:-7]}{bus - 1:02x}:0{index % 2}.0"
        recorded.gpu(f"{below}/0000:{bus:02x}:00.0", numa=numa)
        card = f"{switch}/{switch[-12:-7]}{bus - 1:02x}:1{index % 2}.0/0000:{bus + 1:02x}:00.0"
        device = recorded.card(f"eth{index}", f"10.{index}.0.2/16", at=card, numa=numa)
        gids = {3: (f"10.{index}.0.2", V2, f"eth{index}")}
        recorded.port(f"mlx5_{index}", gids, at=device)
    return recorded


def test_memory_prefers_the_cards_of_its_switch_or_socket(tmp_path: Path) -> None:
    matrix = build_matrix(server(tmp_path).read())
    assert list(matrix) == ["cpu:0", "cpu:1", *(f"cuda:{index}" for index in range(8))]
    assert matrix["cpu:0"][0] == ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
    assert matrix["cpu:0"][1] == ("mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7")
    for index in range(8):
        first = index // 2 * 2
        assert matrix[f"cuda:{index}"][0] == (f"mlx5_{first}", f"mlx5_{first + 1}")
        assert len(matrix[f"cuda:{index}"][1]) == 6


def test_distances_have_the_words_of_nvidia_smi(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    recorded.gpu("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0")
    places = {
        "a": "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0",
        "b": "pci0000:10/0000:10:01.0/0000:11:01.0/0000:15:00.0/0000:16:00.0",
        "c": "pci0000:10/0000:10:02.0/0000:17:00.0",
        "d": "pci0000:20/0000:20:01.0/0000:21:00.0",
    }
    for index, (name, at) in enumerate(places.items()):
        recorded.card(name, f"10.{index}.0.2/16", at=at)
    recorded.card("e", "10.9.0.2/16", at="pci0000:80/0000:80:01.0/0000:81:00.0", numa=1)
    distances = describe_host(recorded.read(), Wishes()).distances
    assert distances["cuda:0"] == {"a": "PIX", "b": "PXB", "c": "PHB", "d": "NODE", "e": "SYS"}
    assert distances["cpu:0"] == {"a": "NODE", "b": "NODE", "c": "NODE", "d": "NODE", "e": "SYS"}


def test_a_card_at_another_numa_node_is_second_choice(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    for index in range(2):
        recorded.card(f"eth{index}", f"10.{index}.0.2/16", numa=1 - index)
    matrix = build_matrix(recorded.read())
    assert matrix == {"cpu:0": (("eth1",), ("eth0",)), "cpu:1": (("eth0",), ("eth1",))}


def test_a_card_whose_numa_node_is_unknown_is_nowhere_preferred(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    recorded.card("eth0", "10.0.0.2/16", numa=0)
    recorded.card("eth1", "10.1.0.2/16", numa=-1)
    matrix = build_matrix(recorded.read())
    assert matrix["cpu:0"] == (("eth0",), ("eth1",))
    assert matrix["cpu:1"] == (("eth0", "eth1"), ())


def test_on_one_numa_node_an_unknown_place_is_that_node(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "10.0.0.2/16", numa=-1)
    assert build_matrix(recorded.read()) == {"cpu:0": (("eth0",), ())}


def test_a_bond_is_where_its_nearest_link_is(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    recorded.nic("bond0", "10.0.0.2/24", files={"bonding/slaves": "eth0 eth1"})
    for index in range(2):
        device = recorded.pci(f"pci0000:{index}0/0000:{index}0:00.0", {"numa_node": str(index)})
        recorded.nic(f"eth{index}", device=device, master="bond0")
    matrix = build_matrix(recorded.read())
    assert matrix == {"cpu:0": (("bond0",), ()), "cpu:1": (("bond0",), ())}


def test_with_more_cards_than_gpus_none_lies_idle(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    switches = ["pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:20/0000:20:01.0/0000:21:00.0"]
    for side, switch in enumerate(switches):
        bus = (side + 1) * 16 + 2
        recorded.gpu(f"{switch}/0000:{bus:02x}:00.0/0000:{bus + 1:02x}:00.0")
        for each in range(2):
            index = side * 2 + each
            at = f"{switch}/0000:{bus:02x}:0{each + 1}.0/0000:{bus + 2 + each:02x}:00.0"
            device = recorded.card(f"eth{index}", f"10.{index}.0.2/16", at=at)
            gids = {3: (f"10.{index}.0.2", V2, f"eth{index}")}
            recorded.port(f"mlx5_{index}", gids, at=device)
    matrix = build_matrix(recorded.read())
    assert matrix["cuda:0"][0] == ("mlx5_0", "mlx5_1")
    assert matrix["cuda:1"][0] == ("mlx5_2", "mlx5_3")


def test_gpus_are_counted_by_pci_address_and_screens_are_none(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, nodes=2)
    recorded.gpu("pci0000:80/0000:81:00.0", numa=1).gpu("pci0000:10/0000:11:00.0", numa=0)
    recorded.gpu("pci0000:00/0000:02:00.0", vendor="0x1a03")
    recorded.card("eth0", "10.0.0.2/16", at="pci0000:10/0000:12:00.0", numa=0)
    distances = describe_host(recorded.read(), Wishes()).distances
    assert [distances[f"cuda:{index}"]["eth0"] for index in range(2)] == ["PHB", "SYS"]
    assert "cuda:2" not in distances


def two_cards(root: Path) -> Host:
    recorded = Recorded(root)
    for index in range(2):
        recorded.card(f"eth{index}", f"10.{index}.0.2/16")
        recorded.port(f"mlx5_{index}", {3: (f"10.{index}.0.2", V2, f"eth{index}")})
    return recorded.read()


def test_a_matrix_is_read_as_it_was_written(tmp_path: Path) -> None:
    host = two_cards(tmp_path)
    path = tmp_path / "matrix.json"
    path.write_text(encode_matrix(build_matrix(host)))
    assert load_matrix(path, host) == build_matrix(host)
    path.write_text(encode_matrix({}))
    assert load_matrix(path, host) == {}


def test_a_matrix_from_a_file_gives_the_addresses_near_memory(tmp_path: Path) -> None:
    host = two_cards(tmp_path)
    path = tmp_path / "matrix.json"
    path.write_text('{"cpu:0": [["mlx5_1", "eth1"], []], "cuda:0": [["10.0.0.2"], ["lo"]]}')
    matrix = load_matrix(path, host)
    assert preferred_addresses(host, matrix) == {"cpu:0": ("10.1.0.2",), "cuda:0": ("10.0.0.2",)}
    assert describe_host(host, Wishes(matrix=matrix)).matrix == matrix


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a table of locations"),
        ('{"gpu:0": [["eth0"], []]}', ":gpu:0: no location"),
        ('{"cpu:01": [["eth0"], []]}', ":cpu:01: no location"),
        ('{"cpu:0": ["eth0"]}', r":cpu:0: not \[\[preferred"),
        ('{"cpu:0": [["eth0"], [1]]}', r":cpu:0: not \[\[preferred"),
        ('{"cpu:0": [[], []]}', ":cpu:0: names no NIC"),
        ('{"cpu:0": [["eth0"], ["eth0"]]}', ":cpu:0: 'eth0' is named twice"),
        ('{"cpu:0": [["mlx5_O"], []]}', ":cpu:0: 'mlx5_O' is no NIC of this host; did you mean"),
    ],
)
def test_a_matrix_that_is_wrong_is_told_with_its_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"^{path}.*{problem}"):
        load_matrix(path, two_cards(tmp_path))


def test_a_matrix_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot read it"):
        load_matrix(tmp_path / "none.json", Host())


def test_cards_of_two_networks_are_two_rails(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for index, address in enumerate(["10.0.0.2", "10.8.0.2", "10.1.0.2", "10.9.0.2"]):
        recorded.card(f"eth{index}", f"{address}/13", "fe80::1/64")
        recorded.port(f"mlx5_{index}", {3: (address, V2, f"eth{index}")})
    report = describe_host(recorded.read(), Wishes())
    assert {rail.network: rail.nics for rail in report.rails} == {
        "10.0.0.0/13": ("mlx5_0/1", "mlx5_2/1", "eth0", "eth2"),
        "10.8.0.0/13": ("mlx5_1/1", "mlx5_3/1", "eth1", "eth3"),
    }
    assert ("mlx5_0/1", "mlx5_2/1") in report.pairs
    assert ("mlx5_0/1", "mlx5_1/1") not in report.pairs


def test_infiniband_ports_share_a_rail_by_their_subnet_prefix(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for index, prefix in enumerate(["fe80", "fe80", "fec0"]):
        gids = {0: (f"{prefix}::{index + 1}", "", "")}
        recorded.port(f"mlx5_{index}", gids, files={"link_layer": "InfiniBand"})
    report = describe_host(recorded.read(), Wishes())
    assert report.pairs == (("mlx5_0/1", "mlx5_1/1"),)
    assert report.rails[1].network == "InfiniBand fec0000000000000"


@pytest.mark.parametrize(
    ("requirement", "told"),
    [
        ("rdma", None),
        ("2", None),
        ("rdma:2", None),
        ("3", "usable NICs: 2, required: 3"),
        ("rdma:3", "usable RDMA ports: 2, required: 3"),
    ],
)
def test_a_requirement_is_met_or_said_why_not(
    tmp_path: Path, requirement: str, told: str | None
) -> None:
    missing = unmet(describe_host(two_cards(tmp_path), Wishes()), requirement)
    assert missing[:1] == (() if told is None else (told,))


def test_a_requirement_of_nothing_known_is_an_error(tmp_path: Path) -> None:
    report = describe_host(two_cards(tmp_path), Wishes())
    for text in ("roce", "0", "-1", "rdma:0", "rdma2", ""):
        with pytest.raises(ConfigError, match="--require"):
            unmet(report, text)
