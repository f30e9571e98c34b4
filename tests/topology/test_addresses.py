"""Which addresses are used, and which one others are told."""

from pathlib import Path

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Host,
    Nic,
    advertise_address,
    read_host,
    resolve_addresses,
    usable_addresses,
)
from tests.topology.trees import Recorded, write


def usual(root: Path) -> Recorded:
    """As many kinds of interface as a container host has; eth0 leads out."""
    recorded = Recorded(root)
    recorded.card("eth0", "192.0.2.2/24", "fd00::2/64", "fe80::2/64")
    recorded.route("eth0", "0.0.0.0/0", "192.0.2.1")
    recorded.nic("docker0", "172.17.0.1/16").nic("br-x", "172.18.0.1/16").nic("veth7")
    recorded.nic("bond0", "10.0.0.2/24", files={"bonding/slaves": "eth3 eth4"})
    recorded.nic("ib0", "10.4.0.2/16", files={"type": "32"})
    return recorded


def test_the_usable_addresses_are_one_an_interface(tmp_path: Path) -> None:
    host = usual(tmp_path).read()
    assert usable_addresses(host) == ("10.0.0.2", "192.0.2.2", "10.4.0.2")


def test_an_interface_with_ipv6_alone_gives_that(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path).nic("eth0", "fe80::2/64", "2001:db8::2/64")
    assert usable_addresses(recorded.read()) == ("2001:db8::2",)


def test_addresses_that_are_not_assigned_yet_are_left_out(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path).nic("eth0")
    recorded.read()
    lines = [
        "fd000000000000000000000000000001 02 40 00 20 eth0",  # deprecated
        "fd000000000000000000000000000002 02 40 00 c8 eth0",  # duplicate
        "fd000000000000000000000000000003 02 40 00 80 eth0",
    ]
    host = read_host(write(tmp_path, {"proc/net/if_inet6": "\n".join(lines)}))
    assert host.nic("eth0").addresses == ("fd00::3/64", "fd00::1/64")  # type: ignore[union-attr]
    assert any("fd00::2/64 of eth0 is not usable" in problem for problem in host.problems)


def test_names_become_addresses_in_their_order_and_once(tmp_path: Path) -> None:
    host = usual(tmp_path).read()
    names = ["ib0", "192.0.2.2", "eth0", "fd00::2", "[fd00::2]", "docker0", "lo", "fe80::2%eth0"]
    assert resolve_addresses(host, names) == (
        *("10.4.0.2", "192.0.2.2", "fd00::2"),
        *("172.17.0.1", "127.0.0.1", "fe80::2%eth0"),
    )
    assert resolve_addresses(host, ["auto"]) == usable_addresses(host)
    assert resolve_addresses(host, ["127.0.0.9"]) == ("127.0.0.9",)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("eth9", "'eth9' is neither an interface nor an address; did you mean 'eth0'"),
        ("veth7", "veth7 has no address"),
        ("10.0.0.3", "10.0.0.3 is no address of this host; there is bond0 10.0.0.2, br-x"),
        ("0.0.0.0", "0.0.0.0 names every interface"),
        ("::", ":: names every interface"),
        ("", "'' is neither"),
        ("10.0.0.2/24", "'10.0.0.2/24' is neither"),
    ],
)
def test_a_name_that_stands_for_no_address_is_an_error(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"^transfer.addresses: {problem}"):
        resolve_addresses(usual(tmp_path).read(), [name])


@pytest.mark.parametrize(
    ("master", "address", "nic"),
    [
        ("198.51.100.7", "192.0.2.2", "eth0"),
        ("192.0.2.77", "192.0.2.2", "eth0"),
        ("10.0.0.77", "10.0.0.2", "bond0"),
        ("10.4.9.9", "10.4.0.2", "ib0"),
        ("10.4.0.2", "10.4.0.2", "ib0"),
        ("127.0.0.1", "127.0.0.1", "lo"),
    ],
)
def test_others_are_told_the_address_that_reaches_the_master(
    tmp_path: Path, master: str, address: str, nic: str
) -> None:
    found = advertise_address(usual(tmp_path).read(), master)
    assert (found.address, found.nic) == (address, nic)


def test_an_ipv6_master_is_reached_over_ipv6(tmp_path: Path) -> None:
    recorded = usual(tmp_path)
    zero = "0" * 32
    line = f"fd{'0' * 30} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth0"
    write(tmp_path, {"proc/net/ipv6_route": line})
    assert advertise_address(recorded.read(), "fd00::77").address == "fd00::2"


def test_a_containers_bridge_is_not_told_though_it_leads_to_the_master(tmp_path: Path) -> None:
    found = advertise_address(usual(tmp_path).read(), "172.17.0.9")
    assert found.nic == "bond0"
    assert "docker0 leads to 172.17.0.9, but is skipped" in found.warnings


def test_a_containers_bridge_is_told_when_it_is_named_or_all_there_is(tmp_path: Path) -> None:
    found = advertise_address(usual(tmp_path).read(), "172.17.0.9", wanted="docker0")
    assert (found.address, found.warnings) == ("172.17.0.1", ())
    (alone := tmp_path / "alone").mkdir()
    recorded = Recorded(alone).nic("docker0", "172.17.0.1/16")
    found = advertise_address(recorded.read(), "172.17.0.9")
    assert found.address == "172.17.0.1" and "the only way" in found.warnings[0]


def test_several_candidates_are_warned_of(tmp_path: Path) -> None:
    found = advertise_address(usual(tmp_path).read(), "198.51.100.7")
    assert any("over bond0, ib0" in warning for warning in found.warnings)
    (single := tmp_path / "single").mkdir()
    recorded = Recorded(single).nic("eth0", "192.0.2.2/24")
    assert advertise_address(recorded.read(), "192.0.2.1").warnings == ()


def test_loopback_is_warned_of(tmp_path: Path) -> None:
    host = usual(tmp_path).read()
    assert "no process of another host" in advertise_address(host, "127.0.0.1").warnings[0]
    assert "reaches this host alone" in advertise_address(host, "10.0.0.9", wanted="lo").warnings[0]


@pytest.mark.parametrize("wanted", ["0.0.0.0", "::"])
def test_every_interface_at_once_is_refused_with_a_hint(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(ConfigError, match=r"names every interface.*there is bond0 10\.0\.0\.2"):
        advertise_address(usual(tmp_path).read(), "10.0.0.9", wanted=wanted)


@pytest.mark.parametrize("master", ["0.0.0.0", "::", "master.example", ""])
def test_a_master_without_an_address_is_refused(master: str) -> None:
    with pytest.raises(ConfigError):
        advertise_address(Host(), master)


def test_without_any_interface_there_is_nothing_to_tell() -> None:
    with pytest.raises(ConfigError, match="no interface with an IPv4 address"):
        advertise_address(Host(nics=(Nic(name="eth0"),)), "10.0.0.1")


def test_the_shorter_metric_wins_between_equal_routes(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "192.0.2.2/24")
    recorded.card("eth1", "198.51.100.2/24")
    recorded.route("eth0", "0.0.0.0/0", "192.0.2.1", metric=200)
    recorded.route("eth1", "0.0.0.0/0", "198.51.100.1", metric=100)
    assert advertise_address(recorded.read(), "203.0.113.1").nic == "eth1"


def test_two_interfaces_of_one_network_are_said_to_be_alike(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "10.0.0.2/24")
    recorded.card("eth1", "10.0.0.3/24")
    problems = recorded.read().problems
    assert "/proc/net/route: 10.0.0.3 may be of eth1 instead of eth0" in problems


def test_this_machines_addresses_are_complete_and_told_apart() -> None:
    host = read_host()
    assert "127.0.0.1/8" in host.nic("lo").addresses  # type: ignore[union-attr]
    for nic in host.nics:
        for interface in nic.interfaces():
            assert interface.ip in interface.network
