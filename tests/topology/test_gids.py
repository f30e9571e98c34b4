"""Which GID of a port is used."""

from pathlib import Path

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.topology import RankedGid, parse_overrides, rank_gids
from tests.topology.trees import V1, V2, Recorded

Gids = dict[int, tuple[str, str, str]]


def ranked(
    root: Path, gids: Gids, *addresses: str, link: str = "Ethernet", peer: str = ""
) -> tuple[RankedGid, ...]:
    recorded = Recorded(root)
    recorded.card("eth0", *addresses)
    host = recorded.port("mlx5_0", gids, files={"link_layer": link}).read()
    return rank_gids(host, host.rdma[0], peer=peer)


@pytest.mark.parametrize("private", ["10.1.2.3/8", "172.16.3.4/12", "100.64.0.9/10"])
def test_a_private_address_goes_before_link_local(tmp_path: Path, private: str) -> None:
    address = private.partition("/")[0]
    gids = {0: ("fe80::1", V2, "eth0"), 1: (address, V2, "eth0")}
    assert ranked(tmp_path, gids, private, "fe80::1/64")[0].index == 1


def test_an_address_of_another_namespace_goes_behind_the_own(tmp_path: Path) -> None:
    gids = {3: ("10.9.9.9", V2, "eth0"), 7: ("10.0.0.2", V2, "eth0")}
    best, other = ranked(tmp_path, gids, "10.0.0.2/24")
    assert best.index == 7 and "configured on eth0" in best.reasons
    assert "eth0 does not have this address now" in other.reasons


def test_a_gid_of_an_interface_that_is_not_here_says_so(tmp_path: Path) -> None:
    (only,) = ranked(tmp_path, {3: ("10.9.9.9", V2, "net1")}, "10.0.0.2/24")
    assert "its interface net1 is not in this network namespace" in only.reasons


def test_of_pairs_the_second_version_is_used(tmp_path: Path) -> None:
    pairs = [("fe80::1", V1), ("fe80::1", V2), ("10.0.0.2", V1), ("10.0.0.2", V2)]
    gids = {index: (address, kind, "eth0") for index, (address, kind) in enumerate(pairs)}
    found = ranked(tmp_path, gids, "10.0.0.2/24", "fe80::1/64")
    assert [each.index for each in found] == [3, 1, 2, 0]


def test_of_ipv6_alone_the_global_one_is_used(tmp_path: Path) -> None:
    gids = {
        0: ("fe80::1", V1, "eth0"),
        1: ("fe80::1", V2, "eth0"),
        2: ("2001:db8::2", V1, "eth0"),
        3: ("2001:db8::2", V2, "eth0"),
    }
    assert ranked(tmp_path, gids, "2001:db8::2/64", "fe80::1/64")[0].index == 3


def test_a_unique_local_address_goes_before_link_local(tmp_path: Path) -> None:
    gids = {0: ("fe80::1", V2, "eth0"), 1: ("fc00::7", V2, "eth0")}
    for addresses in (["fc00::7/64", "fe80::1/64"], []):
        folder = tmp_path / str(len(addresses))
        folder.mkdir()
        assert ranked(folder, gids, *addresses)[0].index == 1


def test_the_peers_subnet_decides_among_equals(tmp_path: Path) -> None:
    gids = {1: ("10.0.0.2", V2, "eth0"), 2: ("10.8.0.2", V2, "eth0"), 5: ("fd00::2", V2, "eth0")}
    addresses = ("10.0.0.2/13", "10.8.0.2/13", "fd00::2/64")
    for peer, index in {"": 1, "10.9.1.1": 2, "::ffff:10.9.1.1": 2, "fd00::9": 5}.items():
        folder = tmp_path / str(index) / str(len(peer))
        folder.mkdir(parents=True)
        assert ranked(folder, gids, *addresses, peer=peer)[0].index == index


def test_on_infiniband_it_is_index_0_with_its_subnet_prefix(tmp_path: Path) -> None:
    gids = {0: ("fe80::2:1", "", ""), 1: ("fec0::1", "", "")}
    best, _ = ranked(tmp_path, gids, link="InfiniBand", peer="fec0::9")
    assert best.index == 0
    assert "subnet prefix fe80000000000000" in best.reasons
    assert "not the peer's subnet prefix" in best.reasons


def test_equal_gids_are_taken_by_index(tmp_path: Path) -> None:
    gids = {index: (f"10.0.0.{index}", "", "") for index in (12, 3, 9)}
    assert [each.index for each in ranked(tmp_path, gids)] == [3, 9, 12]


def test_garbage_in_a_gid_goes_last(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.port("mlx5_0", {2: ("10.0.0.2", V2, "")}, files={"gids/1": "no address at all"})
    host = recorded.read()
    assert [each.index for each in rank_gids(host, host.rdma[0])] == [2, 1]


def test_an_override_wins_even_without_an_interface_and_warns(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "10.0.0.2/24")
    gids = {1: ("10.0.0.2", V2, "eth0"), 3: ("10.5.0.9", V2, "")}
    host = recorded.port("mlx5_0", gids).port("mlx5_1", gids).read()
    overrides = parse_overrides(host, "mlx5_0=3, mlx5_1/1=1")
    first, second = (rank_gids(host, port, overrides=overrides)[0] for port in host.rdma)
    assert (first.index, second.index) == (3, 1) and first.is_override and second.is_override
    assert "mlx5_0/1: GID 3 is used as told" in first.warnings[0]
    assert second.warnings == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mlx5_0", "--gid: mlx5_0: not device=index"),
        ("mlx5_0=x", "--gid: mlx5_0=x: not device=index"),
        ("mlx5_7=1", "--gid: mlx5_7: no such RDMA device; did you mean 'mlx5_0'"),
        ("mlx5_0=9", "--gid: mlx5_0: GID 9 is not set; set are: 1"),
    ],
)
def test_an_override_that_cannot_be_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    host = Recorded(tmp_path).port("mlx5_0", {1: ("10.0.0.2", V2, "")}).read()
    with pytest.raises(ConfigError, match=problem):
        parse_overrides(host, text)
