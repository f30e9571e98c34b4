"""Which devices are used, and why the others are not."""

from pathlib import Path

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.topology import Filter, Host, Verdict, judge, rdma_reasons
from tests.topology.trees import V2, Recorded


def verdict(host: Host, name: str, chosen: Filter | None = None) -> Verdict:
    (found,) = [each for each in judge(host, chosen or Filter()) if each.name == name]
    return found


def codes(host: Host) -> dict[str, str]:
    return {each.name: each.code for each in judge(host)}


def one_port(root: Path, **changes: object) -> Verdict:
    recorded = Recorded(root)
    recorded.card("eth0", "10.0.0.2/24")
    recorded.port("mlx5_0", {3: ("10.0.0.2", V2, "eth0")}, **changes)  # type: ignore[arg-type]
    return verdict(recorded.read(), "mlx5_0/1")


def test_a_healthy_port_is_ok_without_remarks(tmp_path: Path) -> None:
    found = one_port(tmp_path)
    assert (found.code, found.is_usable, found.remarks) == ("ok", True, ())


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"files": {"state": "1: DOWN", "phys_state": "3: Disabled"}}, "down", "Disabled"),
        ({"files": {"state": "2: INIT"}}, "down", "INIT"),
        ({"files": {"state": ""}}, "not-readable", "cannot be read"),
        ({"files": {"state": "\0\x01garbage"}}, "down", "garbage"),
        ({"files": {"link_layer": "Unspecified"}}, "link-layer-unknown", "Unspecified"),
        ({"files": {"link_layer": ""}}, "link-layer-unknown", "not told"),
        ({"files": {"../../node_type": "7: unspecified"}}, "link-layer-unknown", "7: unspec"),
        ({"pkeys": ["0x7fff"]}, "limited-pkey", "0x7fff"),
        ({"pkeys": ["0x7fff", "0x0000", "?"]}, "limited-pkey", "0x7fff"),
        ({"verbs": False}, "no-uverbs", "ib_uverbs"),
    ],
)
def test_a_port_that_cannot_be_used_has_a_reason(
    tmp_path: Path, changes: dict[str, object], code: str, told: str
) -> None:
    found = one_port(tmp_path, **changes)
    assert found.code == code and told in found.reason and not found.is_usable


def test_a_full_member_among_limited_ones_is_enough(tmp_path: Path) -> None:
    assert one_port(tmp_path, pkeys=["0x7fff", "0x8001"]).code == "ok"


def test_a_port_without_gids_is_not_used(tmp_path: Path) -> None:
    assert codes(Recorded(tmp_path).port("mlx5_0").read())["mlx5_0/1"] == "no-gid"


def test_one_disabled_port_takes_nothing_from_the_eight_others(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for index in range(9):
        recorded.card(f"eth{index}", f"10.{index}.0.2/24")
        gids = {3: (f"10.{index}.0.2", V2, f"eth{index}")}
        recorded.port(f"mlx5_{index}", gids)
    recorded.port("mlx5_10", files={"state": "1: DOWN", "phys_state": "3: Disabled"})
    found = codes(recorded.read())
    assert [found[f"mlx5_{index}/1"] for index in range(9)] == ["ok"] * 9
    assert found["mlx5_10/1"] == "down"


def test_a_device_is_opened_by_its_uverbs_name_not_by_its_own(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "10.0.0.2/24")
    host = recorded.port("mlx5_0", {3: ("10.0.0.2", V2, "eth0")}).read()
    assert not (tmp_path / "dev/infiniband/mlx5_0").exists()
    assert (host.rdma[0].uverbs, host.rdma[0].uverbs_node) == ("uverbs0", "there")
    assert codes(host)["mlx5_0/1"] == "ok"


def test_uverbs_without_its_device_node_is_told(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path).port("mlx5_0", {0: ("10.0.0.2", V2, "eth0")})
    (tmp_path / "dev/infiniband/uverbs0").unlink()
    found = verdict(recorded.read(), "mlx5_0/1")
    assert found.code == "no-uverbs" and "/dev/infiniband/uverbs0 is not there" in found.reason


def test_a_copy_without_dev_leaves_the_device_node_open(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.card("eth0", "10.0.0.2/24")
    recorded.port("mlx5_0", {0: ("10.0.0.2", V2, "eth0")})
    (tmp_path / "dev").rename(tmp_path / "not-recorded")
    found = verdict(recorded.read(), "mlx5_0/1")
    assert found.code == "ok" and "was not recorded" in found.remarks[0]


def test_what_cannot_be_read_is_told_and_no_error(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path).port("mlx5_0", {0: ("10.0.0.2", V2, "")}).port("mlx5_1")
    # Reading a folder fails for every user, root too.
    for name in ("mlx5_0/ports/1/state", "mlx5_1/ports/1/gids/0"):
        (tmp_path / "sys/class/infiniband" / name).unlink()
        (tmp_path / "sys/class/infiniband" / name).mkdir()
    host = recorded.read()
    assert codes(host)["mlx5_0/1"] == "not-readable"
    assert codes(host)["mlx5_1/1"] == "no-gid"
    assert any("mlx5_0/ports/1/state: Is a directory" in problem for problem in host.problems)


def test_a_virtual_function_is_usable_and_called_so(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    device = recorded.card("eth0", "10.0.0.2/24")
    (device / "physfn").symlink_to("../0000:00:00.0")
    (device.parent / "0000:00:00.0").mkdir()
    host = recorded.port("mlx5_0", {3: ("10.0.0.2", V2, "eth0")}, at=device).read()
    for name in ("mlx5_0/1", "eth0"):
        found = verdict(host, name)
        assert found.code == "vf" and found.is_usable
    assert rdma_reasons(host) == ()


def bonded(root: Path, gid_of: str) -> Host:
    recorded = Recorded(root)
    bonding = {"bonding/slaves": "eth0 eth1", "bonding/mode": "802.3ad 4"}
    recorded.nic("bond0", "10.0.0.2/24", files=bonding)
    device = recorded.pci("pci0000:00/0000:01:00.0", {"net/eth0/type": "1", "net/eth1/type": "1"})
    for name in ("eth0", "eth1"):
        recorded.nic(name, device=device, master="bond0")
    gids = {1: ("10.0.0.2" if gid_of == "bond0" else "fe80::1", V2, gid_of)}
    return recorded.port("mlx5_bond_0", gids, at=device).read()


def test_a_bond_is_used_as_one_device_and_its_links_are_not(tmp_path: Path) -> None:
    host = bonded(tmp_path, "bond0")
    assert codes(host) == {
        "mlx5_bond_0/1": "ok",
        "bond0": "ok",
        "eth0": "bond-slave",
        "eth1": "bond-slave",
        "lo": "loopback",
    }
    assert "a bond of eth0, eth1" in verdict(host, "mlx5_bond_0/1").remarks[0]
    assert host.nic("bond0").members == ("eth0", "eth1")  # type: ignore[union-attr]


def test_a_port_whose_gids_belong_to_a_link_of_a_bond_is_not_used(tmp_path: Path) -> None:
    found = verdict(bonded(tmp_path, "eth0"), "mlx5_bond_0/1")
    assert found.code == "bond-slave" and "eth0, a part of bond0" in found.reason


def test_containers_bridges_and_tunnels_are_skipped_unless_named(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    skipped = {
        "docker0": "bridge",
        "br-4f2a": "bridge",
        "virbr0": "bridge",
        "veth12ab": "virtual",
        "dummy0": "virtual",
        "tun0": "tun",
    }
    for index, name in enumerate(skipped):
        recorded.nic(name, f"172.{17 + index}.0.1/16")
    recorded.nic("corp", "172.30.0.1/16", files={"tun_flags": "0x1002"})
    host = recorded.read()
    assert codes(host) == {**skipped, "corp": "tun", "lo": "loopback"}
    assert verdict(host, "docker0", Filter(only=("docker0",))).is_usable
    assert not verdict(host, "docker0", Filter(only=("dock*",))).is_usable


@pytest.mark.parametrize(
    ("addresses", "files", "code"),
    [
        ([], {}, "no-address"),
        (["fe80::1/64"], {}, "no-address"),
        (["169.254.7.7/16"], {}, "no-address"),
        (["10.0.0.2/24"], {"operstate": "down", "carrier": "0"}, "no-carrier"),
        (["10.0.0.2/24"], {"operstate": "down", "flags": "0x1002"}, "down"),
        (["10.0.0.2/24"], {"operstate": "lowerlayerdown"}, "down"),
        (["10.0.0.2/24"], {"operstate": ""}, "not-readable"),
        (["10.0.0.2/24"], {"flags": "many", "carrier": "?"}, "ok"),
        (["fd00::2/64"], {}, "ok"),
    ],
)
def test_an_interface_needs_a_carrier_and_an_address(
    tmp_path: Path, addresses: list[str], files: dict[str, str], code: str
) -> None:
    recorded = Recorded(tmp_path)
    recorded.nic("eth0", *addresses, files=files)
    assert codes(recorded.read())["eth0"] == code


def test_filters_name_devices_or_fit_them(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for index in range(3):
        recorded.port(f"mlx5_{index}", {3: (f"10.{index}.0.2", V2, "eth0")})
    host = recorded.read()
    chosen = Filter(only=("mlx5_*",), exclude=("mlx5_1", "mlx5_2/1"))
    chosen.check(host)
    found = {each.name: each.code for each in judge(host, chosen)}
    assert found["mlx5_0/1"] == "ok"
    assert found["mlx5_1/1"] == found["mlx5_2/1"] == found["lo"] == "excluded-by-filter"


def test_a_filter_that_fits_nothing_names_the_nearest_device(tmp_path: Path) -> None:
    host = Recorded(tmp_path).port("mlx5_0").read()
    with pytest.raises(ConfigError, match=r"--only: mlx_0: no device fits; did you mean 'mlx5_0'"):
        Filter(only=("mlx_0",)).check(host)


def test_why_rdma_cannot_be_used_is_told_for_every_port(tmp_path: Path) -> None:
    (bare := tmp_path / "bare").mkdir()
    assert "no /sys/class/infiniband" in rdma_reasons(Recorded(bare).read())[0]
    (hidden := tmp_path / "hidden").mkdir()
    (hidden / "sys/class/infiniband").mkdir(parents=True)
    assert rdma_reasons(Recorded(hidden).read()) == ("/sys/class/infiniband has no device",)
    (broken := tmp_path / "broken").mkdir()
    recorded = Recorded(broken).port("mlx5_0", files={"state": "1: DOWN"}).port("mlx5_1")
    first, second = rdma_reasons(recorded.read())
    assert first.startswith("mlx5_0/1: down") and second.startswith("mlx5_1/1: no-gid")
